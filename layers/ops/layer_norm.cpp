#include "layers/math/layer_norm.h"

#include "layers/ops/cpu_loops.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/launches.h"
#include "layers/ops/ops.h"

namespace tempo::layers {
namespace {

// The gradients of gamma and beta are summed over rows in at most this many runs, each in order, then over the runs: few enough
// that the partial sums are small, enough for the threads, and the same for any number of them.
constexpr std::int64_t kMaxRowRuns = 32;

template <typename T>
TEMPO_INLINE void forward_row(const T* z, const T* gamma, const T* beta, double eps, T* y, T* mean, T* rstd,
                              std::int64_t size) {
  constexpr int kLanes = Lanes<T>::kCount;
  const std::int64_t whole = size - size % kLanes;
  Lanes<T> total;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) total.lane[l] += z[i + l];
  }
  for (std::int64_t i = whole; i < size; ++i) total.lane[i - whole] += z[i];
  const T row_mean = total.sum() / static_cast<T>(size);
  Lanes<T> squares;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const T centred = z[i + l] - row_mean;
      squares.lane[l] = std::fma(centred, centred, squares.lane[l]);
    }
  }
  for (std::int64_t i = whole; i < size; ++i) {
    const T centred = z[i] - row_mean;
    squares.lane[i - whole] = std::fma(centred, centred, squares.lane[i - whole]);
  }
  const T row_rstd = T{1} / std::sqrt(squares.sum() / static_cast<T>(size) + static_cast<T>(eps));
  for (std::int64_t i = 0; i < size; ++i) {
    y[i] = math::layer_norm_value(math::normalized(z[i], row_mean, row_rstd), gamma[i], beta[i]);
  }
  *mean = row_mean;
  *rstd = row_rstd;
}

template <typename T>
TEMPO_INLINE void backward_row(const T* grad, const T* z, T mean, T rstd, const T* gamma, T* grad_z, T* grad_gamma,
                               T* grad_beta, std::int64_t size) {
  constexpr int kLanes = Lanes<T>::kCount;
  const std::int64_t whole = size - size % kLanes;
  Lanes<T> grads;
  Lanes<T> grads_x_hat;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const T weighted = grad[i + l] * gamma[i + l];
      grads.lane[l] += weighted;
      grads_x_hat.lane[l] = std::fma(weighted, math::normalized(z[i + l], mean, rstd), grads_x_hat.lane[l]);
    }
  }
  for (std::int64_t i = whole; i < size; ++i) {
    const T weighted = grad[i] * gamma[i];
    grads.lane[i - whole] += weighted;
    grads_x_hat.lane[i - whole] = std::fma(weighted, math::normalized(z[i], mean, rstd), grads_x_hat.lane[i - whole]);
  }
  const T mean_grad = grads.sum() / static_cast<T>(size);
  const T mean_grad_x_hat = grads_x_hat.sum() / static_cast<T>(size);
  for (std::int64_t i = 0; i < size; ++i) {
    const T x_hat = math::normalized(z[i], mean, rstd);
    grad_z[i] = math::layer_norm_input_grad(grad[i] * gamma[i], x_hat, rstd, mean_grad, mean_grad_x_hat);
    grad_gamma[i] = std::fma(grad[i], x_hat, grad_gamma[i]);
    grad_beta[i] += grad[i];
  }
}

template <typename T>
TEMPO_INLINE void add_runs_loop(const T* runs, std::int64_t num_runs, std::int64_t size, T* sum) {
  for (std::int64_t i = 0; i < size; ++i) sum[i] = 0;
  for (std::int64_t run = 0; run < num_runs; ++run) {
    for (std::int64_t i = 0; i < size; ++i) sum[i] += runs[run * size + i];
  }
}

#define TEMPO_LAYER_NORM_ROWS(T, CLONES)                                                                             \
  CLONES void forward_rows(const T* z, const T* gamma, const T* beta, double eps, T* y, T* mean, T* rstd,            \
                           std::int64_t rows, std::int64_t size) {                                                   \
    for (std::int64_t r = 0; r < rows; ++r) {                                                                        \
      forward_row(z + r * size, gamma, beta, eps, y + r * size, mean + r, rstd + r, size);                           \
    }                                                                                                                \
  }                                                                                                                  \
  CLONES void backward_rows(const T* grad, const T* z, const T* mean, const T* rstd, const T* gamma, T* grad_z,      \
                            T* grad_gamma, T* grad_beta, std::int64_t rows, std::int64_t size) {                     \
    for (std::int64_t r = 0; r < rows; ++r) {                                                                        \
      backward_row(grad + r * size, z + r * size, mean[r], rstd[r], gamma, grad_z + r * size, grad_gamma, grad_beta, \
                   size);                                                                                            \
    }                                                                                                                \
  }                                                                                                                  \
  CLONES void add_runs(const T* runs, std::int64_t num_runs, std::int64_t size, T* sum) {                            \
    add_runs_loop(runs, num_runs, size, sum);                                                                        \
  }

TEMPO_LAYER_NORM_ROWS(float, TEMPO_VECTORISED)
TEMPO_LAYER_NORM_ROWS(double, )

using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

ThreeTensors layer_norm_kernel(const at::Tensor& z_any, const at::Tensor& gamma, const at::Tensor& beta, double eps) {
  const at::Tensor z = z_any.contiguous();
  TORCH_CHECK(z.dim() == 2 && gamma.dim() == 1 && gamma.size(0) == z.size(1) && beta.sizes() == gamma.sizes(),
              "layer_norm: z ", z.sizes(), ", gamma ", gamma.sizes(), ", beta ", beta.sizes(), " do not fit");
  check_contiguous("layer_norm", {gamma, beta});
  const std::int64_t rows = z.size(0);
  const std::int64_t size = z.size(1);
  at::Tensor y = at::empty_like(z);
  at::Tensor mean = at::empty({rows}, z.options());
  at::Tensor rstd = at::empty({rows}, z.options());
  const auto cpu = [&] {
    for_element_type(z, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = z.const_data_ptr<T>();
      const T* gamma_data = gamma.const_data_ptr<T>();
      const T* beta_data = beta.const_data_ptr<T>();
      T* to = y.mutable_data_ptr<T>();
      T* mean_data = mean.mutable_data_ptr<T>();
      T* rstd_data = rstd.mutable_data_ptr<T>();
      at::parallel_for(0, rows, grain_rows(size), [&](std::int64_t begin, std::int64_t end) {
        forward_rows(from + begin * size, gamma_data, beta_data, eps, to + begin * size, mean_data + begin,
                     rstd_data + begin, end - begin, size);
      });
    });
  };
  on_device(z, cpu, [&](void* stream) {
    cuda::layer_norm(stream, z.const_data_ptr<float>(), gamma.const_data_ptr<float>(), beta.const_data_ptr<float>(),
                     static_cast<float>(eps), y.mutable_data_ptr<float>(), mean.mutable_data_ptr<float>(),
                     rstd.mutable_data_ptr<float>(), rows, size);
  });
  return {y, mean, rstd};
}

ThreeTensors layer_norm_backward_kernel(const at::Tensor& grad_any, const at::Tensor& z_any, const at::Tensor& mean,
                                        const at::Tensor& rstd, const at::Tensor& gamma) {
  const at::Tensor grad = grad_any.contiguous();
  const at::Tensor z = z_any.contiguous();
  const std::int64_t rows = z.size(0);
  const std::int64_t size = z.size(1);
  at::Tensor grad_z = at::empty_like(z);
  at::Tensor grad_gamma = at::empty_like(gamma);
  at::Tensor grad_beta = at::empty_like(gamma);
  const std::int64_t rows_per_run = std::max<std::int64_t>(1, (rows + kMaxRowRuns - 1) / kMaxRowRuns);
  const std::int64_t num_runs = (rows + rows_per_run - 1) / rows_per_run;
  at::Tensor runs = at::zeros({2, num_runs, size}, z.options());
  // On the device of the gradients of gamma and beta: they are zeros, not nothing, where z has no rows.
  const auto cpu = [&] {
    for_element_type(z, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = grad.const_data_ptr<T>();
      const T* input = z.const_data_ptr<T>();
      const T* mean_data = mean.const_data_ptr<T>();
      const T* rstd_data = rstd.const_data_ptr<T>();
      const T* gamma_data = gamma.const_data_ptr<T>();
      T* to = grad_z.mutable_data_ptr<T>();
      T* gamma_runs = runs.mutable_data_ptr<T>();
      T* beta_runs = gamma_runs + num_runs * size;
      at::parallel_for(0, num_runs, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t run = begin; run < end; ++run) {
          const std::int64_t first = run * rows_per_run;
          backward_rows(from + first * size, input + first * size, mean_data + first, rstd_data + first, gamma_data,
                        to + first * size, gamma_runs + run * size, beta_runs + run * size,
                        std::min(rows_per_run, rows - first), size);
        }
      });
      add_runs(gamma_runs, num_runs, size, grad_gamma.mutable_data_ptr<T>());
      add_runs(beta_runs, num_runs, size, grad_beta.mutable_data_ptr<T>());
    });
  };
  on_device(grad_gamma, cpu, [&](void* stream) {
    cuda::layer_norm_backward(stream, grad.const_data_ptr<float>(), z.const_data_ptr<float>(),
                              mean.const_data_ptr<float>(), rstd.const_data_ptr<float>(), gamma.const_data_ptr<float>(),
                              grad_z.mutable_data_ptr<float>(), grad_gamma.mutable_data_ptr<float>(),
                              grad_beta.mutable_data_ptr<float>(), runs.mutable_data_ptr<float>(),
                              {num_runs, rows_per_run}, rows, size);
  });
  return {grad_z, grad_gamma, grad_beta};
}

struct LayerNormFunction : Function<LayerNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& z, const at::Tensor& gamma,
                            const at::Tensor& beta, double eps) {
    auto [y, mean, rstd] = TEMPO_CALL(layer_norm, z, gamma, beta, eps);
    context->save_for_backward({z, mean, rstd, gamma});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("layer_norm");
    const variable_list saved = context->get_saved_variables();
    auto [grad_z, grad_gamma, grad_beta] =
        TEMPO_CALL(layer_norm_backward, grads[0], saved[0], saved[1], saved[2], saved[3]);
    return {grad_z, grad_gamma, grad_beta, {}};
  }
};

TEMPO_REGISTER(layer_norm)
TEMPO_REGISTER(layer_norm_backward)

}  // namespace

at::Tensor layer_norm(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta, double eps) {
  return LayerNormFunction::apply(z, gamma, beta, eps);
}

}  // namespace tempo::layers
