#include "layers/math/layer_norm.h"

#include "layers/ops/cpu_loops.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/launches.h"
#include "layers/ops/layer_norm.h"
#include "layers/ops/ops.h"

namespace tempo::layers {
namespace {

// The gradients of gamma and beta are summed over rows in at most this many runs, each in order, then over the runs: few enough
// that the partial sums are small, enough for the threads, and the same for any number of them.
constexpr std::int64_t kMaxRowRuns = 32;

using math::Compute;

template <typename T>
TEMPO_INLINE void apply_row(const T* z, Compute<T> mean, Compute<T> rstd, const T* gamma, const T* beta, T* y,
                            std::int64_t size) {
  using C = Compute<T>;
  for (std::int64_t i = 0; i < size; ++i)
    y[i] = math::layer_norm_value(math::normalized(C{z[i]}, mean, rstd), C{gamma[i]}, C{beta[i]});
}

template <typename T>
TEMPO_INLINE void forward_row(const T* z, const T* gamma, const T* beta, double eps, T* y, Compute<T>* mean,
                              Compute<T>* rstd, std::int64_t size) {
  using C = Compute<T>;
  constexpr int kLanes = Lanes<C>::kCount;
  const std::int64_t whole = size - size % kLanes;
  Lanes<C> total;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) total.lane[l] += C{z[i + l]};
  }
  for (std::int64_t i = whole; i < size; ++i) total.lane[i - whole] += C{z[i]};
  const C row_mean = total.sum() / static_cast<C>(size);
  Lanes<C> squares;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const C centred = C{z[i + l]} - row_mean;
      squares.lane[l] = std::fma(centred, centred, squares.lane[l]);
    }
  }
  for (std::int64_t i = whole; i < size; ++i) {
    const C centred = C{z[i]} - row_mean;
    squares.lane[i - whole] = std::fma(centred, centred, squares.lane[i - whole]);
  }
  const C row_rstd = C{1} / std::sqrt(squares.sum() / static_cast<C>(size) + static_cast<C>(eps));
  apply_row(z, row_mean, row_rstd, gamma, beta, y, size);
  *mean = row_mean;
  *rstd = row_rstd;
}

/// x_hat of one row, from its input.
template <typename T>
struct NormInput {
  const T* z;
  Compute<T> mean;
  Compute<T> rstd;
  TEMPO_INLINE Compute<T> operator()(std::int64_t i) const { return math::normalized(Compute<T>{z[i]}, mean, rstd); }
};

/// x_hat of one row, from its output.
template <typename T>
struct NormOutput {
  const T* y;
  const T* gamma;
  const T* beta;
  TEMPO_INLINE Compute<T> operator()(std::int64_t i) const {
    return math::inverted<T>(Compute<T>{y[i]}, Compute<T>{gamma[i]}, Compute<T>{beta[i]});
  }
};

template <typename T, typename XHat>
TEMPO_INLINE void backward_row(const T* grad, const XHat x_hat_of, Compute<T> rstd, const T* gamma, T* grad_z,
                               Compute<T>* grad_gamma, Compute<T>* grad_beta, std::int64_t size) {
  using C = Compute<T>;
  constexpr int kLanes = Lanes<C>::kCount;
  const std::int64_t whole = size - size % kLanes;
  Lanes<C> grads;
  Lanes<C> grads_x_hat;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const C weighted = C{grad[i + l]} * C{gamma[i + l]};
      grads.lane[l] += weighted;
      grads_x_hat.lane[l] = std::fma(weighted, x_hat_of(i + l), grads_x_hat.lane[l]);
    }
  }
  for (std::int64_t i = whole; i < size; ++i) {
    const C weighted = C{grad[i]} * C{gamma[i]};
    grads.lane[i - whole] += weighted;
    grads_x_hat.lane[i - whole] = std::fma(weighted, x_hat_of(i), grads_x_hat.lane[i - whole]);
  }
  const C mean_grad = grads.sum() / static_cast<C>(size);
  const C mean_grad_x_hat = grads_x_hat.sum() / static_cast<C>(size);
  for (std::int64_t i = 0; i < size; ++i) {
    const C x_hat = x_hat_of(i);
    const C of_y{grad[i]};
    grad_z[i] = math::layer_norm_input_grad(of_y * C{gamma[i]}, x_hat, rstd, mean_grad, mean_grad_x_hat);
    grad_gamma[i] = std::fma(of_y, x_hat, grad_gamma[i]);
    grad_beta[i] += of_y;
  }
}

/// sum = all runs added up, in the first one's place. `sum` may round.
template <typename T>
TEMPO_INLINE void add_runs_loop(Compute<T>* runs, std::int64_t num_runs, std::int64_t size, T* sum) {
  for (std::int64_t run = 1; run < num_runs; ++run) {
    for (std::int64_t i = 0; i < size; ++i) runs[i] += runs[run * size + i];
  }
  for (std::int64_t i = 0; i < size; ++i) sum[i] = num_runs == 0 ? Compute<T>{0} : runs[i];
}

#define TEMPO_LAYER_NORM_ROWS(T, CLONES)                                                                               \
  CLONES void forward_rows(const T* z, const T* gamma, const T* beta, double eps, T* y, Compute<T>* mean,              \
                           Compute<T>* rstd, std::int64_t rows, std::int64_t size) {                                   \
    for (std::int64_t r = 0; r < rows; ++r) {                                                                          \
      forward_row(z + r * size, gamma, beta, eps, y + r * size, mean + r, rstd + r, size);                             \
    }                                                                                                                  \
  }                                                                                                                    \
  CLONES void apply_rows(const T* z, const Compute<T>* mean, const Compute<T>* rstd, const T* gamma, const T* beta,    \
                         T* y, std::int64_t rows, std::int64_t size) {                                                 \
    for (std::int64_t r = 0; r < rows; ++r) {                                                                          \
      apply_row(z + r * size, mean[r], rstd[r], gamma, beta, y + r * size, size);                                      \
    }                                                                                                                  \
  }                                                                                                                    \
  CLONES void backward_rows(const T* grad, const T* z, const Compute<T>* mean, const Compute<T>* rstd, const T* gamma, \
                            T* grad_z, Compute<T>* grad_gamma, Compute<T>* grad_beta, std::int64_t rows,               \
                            std::int64_t size) {                                                                       \
    for (std::int64_t r = 0; r < rows; ++r) {                                                                          \
      backward_row(grad + r * size, NormInput<T>{z + r * size, mean[r], rstd[r]}, rstd[r], gamma, grad_z + r * size,   \
                   grad_gamma, grad_beta, size);                                                                       \
    }                                                                                                                  \
  }                                                                                                                    \
  CLONES void backward_rows_from_output(const T* grad, const T* y, const Compute<T>* rstd, const T* gamma,             \
                                        const T* beta, T* grad_z, Compute<T>* grad_gamma, Compute<T>* grad_beta,       \
                                        std::int64_t rows, std::int64_t size) {                                        \
    for (std::int64_t r = 0; r < rows; ++r) {                                                                          \
      backward_row(grad + r * size, NormOutput<T>{y + r * size, gamma, beta}, rstd[r], gamma, grad_z + r * size,       \
                   grad_gamma, grad_beta, size);                                                                       \
    }                                                                                                                  \
  }                                                                                                                    \
  CLONES void add_runs(Compute<T>* runs, std::int64_t num_runs, std::int64_t size, T* sum) {                           \
    add_runs_loop(runs, num_runs, size, sum);                                                                          \
  }

TEMPO_LAYER_NORM_ROWS(float, TEMPO_VECTORISED)
TEMPO_LAYER_NORM_ROWS(at::BFloat16, TEMPO_VECTORISED)
TEMPO_LAYER_NORM_ROWS(at::Half, TEMPO_VECTORISED)
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
  at::Tensor mean = at::empty({rows}, compute_options(z));
  at::Tensor rstd = at::empty({rows}, compute_options(z));
  const auto cpu = [&] {
    for_element_type(z, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = z.const_data_ptr<T>();
      const T* gamma_data = gamma.const_data_ptr<T>();
      const T* beta_data = beta.const_data_ptr<T>();
      T* to = y.mutable_data_ptr<T>();
      Compute<T>* mean_data = mean.mutable_data_ptr<Compute<T>>();
      Compute<T>* rstd_data = rstd.mutable_data_ptr<Compute<T>>();
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

at::Tensor layer_norm_apply_kernel(const at::Tensor& z_any, const at::Tensor& mean, const at::Tensor& rstd,
                                   const at::Tensor& gamma, const at::Tensor& beta) {
  check_contiguous("layer_norm_apply", {mean, rstd, gamma, beta});
  const at::Tensor z = z_any.contiguous();
  const std::int64_t rows = z.size(0);
  const std::int64_t size = z.size(1);
  at::Tensor y = at::empty_like(z);
  const auto cpu = [&] {
    for_element_type(z, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = z.const_data_ptr<T>();
      const Compute<T>* mean_data = mean.const_data_ptr<Compute<T>>();
      const Compute<T>* rstd_data = rstd.const_data_ptr<Compute<T>>();
      const T* gamma_data = gamma.const_data_ptr<T>();
      const T* beta_data = beta.const_data_ptr<T>();
      T* to = y.mutable_data_ptr<T>();
      at::parallel_for(0, rows, grain_rows(size), [&](std::int64_t begin, std::int64_t end) {
        apply_rows(from + begin * size, mean_data + begin, rstd_data + begin, gamma_data, beta_data, to + begin * size,
                   end - begin, size);
      });
    });
  };
  on_device(z, cpu, [&](void* stream) {
    cuda::layer_norm_apply(stream, z.const_data_ptr<float>(), mean.const_data_ptr<float>(),
                           rstd.const_data_ptr<float>(), gamma.const_data_ptr<float>(), beta.const_data_ptr<float>(),
                           y.mutable_data_ptr<float>(), rows, size);
  });
  return y;
}

/// What both backward passes allocate: the gradients and, [2, num_runs, size], the sums of gamma's and of beta's runs.
struct Gradients {
  at::Tensor z, gamma, beta, sums;
  std::int64_t rows, size;
  cuda::RowRuns runs{};

  Gradients(const at::Tensor& grad, const at::Tensor& gamma_value)
      : z(at::empty_like(grad)),
        gamma(at::empty_like(gamma_value)),
        beta(at::empty_like(gamma_value)),
        rows(grad.size(0)),
        size(grad.size(1)) {
    runs.rows_per_run = std::max<std::int64_t>(1, (rows + kMaxRowRuns - 1) / kMaxRowRuns);
    runs.num_runs = (rows + runs.rows_per_run - 1) / runs.rows_per_run;
    sums = at::zeros({2, runs.num_runs, size}, compute_options(grad));
  }

  /// Calls rows_of_run(first row, number of rows, gamma's sums, beta's sums) for every run and adds the runs up.
  template <typename T, typename RowsOfRun>
  void for_each_run(const RowsOfRun& rows_of_run) {
    Compute<T>* gamma_sums = sums.mutable_data_ptr<Compute<T>>();
    Compute<T>* beta_sums = gamma_sums + runs.num_runs * size;
    at::parallel_for(0, runs.num_runs, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t run = begin; run < end; ++run) {
        const std::int64_t first = run * runs.rows_per_run;
        rows_of_run(first, std::min(runs.rows_per_run, rows - first), gamma_sums + run * size, beta_sums + run * size);
      }
    });
    add_runs(gamma_sums, runs.num_runs, size, gamma.mutable_data_ptr<T>());
    add_runs(beta_sums, runs.num_runs, size, beta.mutable_data_ptr<T>());
  }

  cuda::LayerNormGradients on_cuda() {
    return {z.mutable_data_ptr<float>(),
            gamma.mutable_data_ptr<float>(),
            beta.mutable_data_ptr<float>(),
            sums.mutable_data_ptr<float>(),
            runs,
            rows,
            size};
  }
};

ThreeTensors layer_norm_backward_kernel(const at::Tensor& grad_any, const at::Tensor& z_any, const at::Tensor& mean,
                                        const at::Tensor& rstd, const at::Tensor& gamma) {
  const at::Tensor grad = grad_any.contiguous();
  const at::Tensor z = z_any.contiguous();
  Gradients to(grad, gamma);
  const auto cpu = [&] {
    for_element_type(z, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = grad.const_data_ptr<T>();
      const T* input = z.const_data_ptr<T>();
      const Compute<T>* mean_data = mean.const_data_ptr<Compute<T>>();
      const Compute<T>* rstd_data = rstd.const_data_ptr<Compute<T>>();
      const T* gamma_data = gamma.const_data_ptr<T>();
      T* grad_z = to.z.mutable_data_ptr<T>();
      to.for_each_run<T>([&](std::int64_t first, std::int64_t rows, Compute<T>* gamma_sum, Compute<T>* beta_sum) {
        const std::int64_t at = first * to.size;
        backward_rows(from + at, input + at, mean_data + first, rstd_data + first, gamma_data, grad_z + at, gamma_sum,
                      beta_sum, rows, to.size);
      });
    });
  };
  // On the device of the gradients of gamma and beta: they are zeros, not nothing, where z has no rows.
  on_device(to.gamma, cpu, [&](void* stream) {
    cuda::layer_norm_backward(stream, grad.const_data_ptr<float>(), z.const_data_ptr<float>(),
                              mean.const_data_ptr<float>(), rstd.const_data_ptr<float>(), gamma.const_data_ptr<float>(),
                              to.on_cuda());
  });
  return {to.z, to.gamma, to.beta};
}

ThreeTensors layer_norm_backward_from_output_kernel(const at::Tensor& grad_any, const at::Tensor& y,
                                                    const at::Tensor& rstd, const at::Tensor& gamma,
                                                    const at::Tensor& beta) {
  check_contiguous("layer_norm_backward_from_output", {y, rstd, gamma, beta});
  const at::Tensor grad = grad_any.contiguous();
  Gradients to(grad, gamma);
  const auto cpu = [&] {
    for_element_type(y, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = grad.const_data_ptr<T>();
      const T* output = y.const_data_ptr<T>();
      const Compute<T>* rstd_data = rstd.const_data_ptr<Compute<T>>();
      const T* gamma_data = gamma.const_data_ptr<T>();
      const T* beta_data = beta.const_data_ptr<T>();
      T* grad_z = to.z.mutable_data_ptr<T>();
      to.for_each_run<T>([&](std::int64_t first, std::int64_t rows, Compute<T>* gamma_sum, Compute<T>* beta_sum) {
        const std::int64_t at = first * to.size;
        backward_rows_from_output(from + at, output + at, rstd_data + first, gamma_data, beta_data, grad_z + at,
                                  gamma_sum, beta_sum, rows, to.size);
      });
    });
  };
  on_device(to.gamma, cpu, [&](void* stream) {
    cuda::layer_norm_backward_from_output(stream, grad.const_data_ptr<float>(), y.const_data_ptr<float>(),
                                          rstd.const_data_ptr<float>(), gamma.const_data_ptr<float>(),
                                          beta.const_data_ptr<float>(), to.on_cuda());
  });
  return {to.z, to.gamma, to.beta};
}

at::Tensor is_norm_invertible_kernel(const at::Tensor& gamma, const at::Tensor& beta) {
  TORCH_CHECK(gamma.dim() == 1 && beta.sizes() == gamma.sizes(), "is_norm_invertible: gamma ", gamma.sizes(),
              " and beta ", beta.sizes(), " do not fit");
  check_contiguous("is_norm_invertible", {gamma, beta});
  at::Tensor answer = at::empty({}, gamma.options().dtype(at::kBool));
  const auto cpu = [&] {
    for_element_type(gamma, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* gamma_data = gamma.const_data_ptr<T>();
      const T* beta_data = beta.const_data_ptr<T>();
      bool all = true;
      for (std::int64_t i = 0; i < gamma.numel(); ++i)
        all &= math::is_channel_invertible<T>(Compute<T>{gamma_data[i]}, Compute<T>{beta_data[i]});
      *answer.mutable_data_ptr<bool>() = all;
    });
  };
  on_device(answer, cpu, [&](void* stream) {
    cuda::is_norm_invertible(stream, gamma.const_data_ptr<float>(), beta.const_data_ptr<float>(),
                             answer.mutable_data_ptr<bool>(), gamma.numel());
  });
  return answer;
}

struct LayerNormFunction : Function<LayerNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& z, const at::Tensor& gamma,
                            const at::Tensor& beta, double eps, NormKeep keep) {
    auto [y, mean, rstd] = normed_rows(z, gamma, beta, eps);
    context->saved_data["keeps_output"] = keep == NormKeep::kOutput;
    if (keep == NormKeep::kOutput) {
      // y as an output: whoever reads it next keeps the same storage.
      context->save_for_backward({y, rstd, gamma, beta});
    } else {
      context->save_for_backward({z, mean, rstd, gamma});
    }
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("layer_norm");
    const variable_list saved = context->get_saved_variables();
    auto [grad_z, grad_gamma, grad_beta] =
        context->saved_data["keeps_output"].toBool()
            ? TEMPO_CALL(layer_norm_backward_from_output, grads[0], saved[0], saved[1], saved[2], saved[3])
            : norm_gradients(grads[0], saved[0], saved[1], saved[2], saved[3]);
    return {grad_z, grad_gamma, grad_beta, {}, {}};
  }
};

TEMPO_REGISTER(layer_norm)
TEMPO_REGISTER(layer_norm_apply)
TEMPO_REGISTER(layer_norm_backward)
TEMPO_REGISTER(layer_norm_backward_from_output)
TEMPO_REGISTER(is_norm_invertible)

}  // namespace

NormedRows normed_rows(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta, double eps) {
  auto [y, mean, rstd] = TEMPO_CALL(layer_norm, z, gamma, beta, eps);
  return {y, mean, rstd};
}

at::Tensor normed_again(const at::Tensor& z, const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& gamma,
                        const at::Tensor& beta) {
  return TEMPO_CALL(layer_norm_apply, z, mean, rstd, gamma, beta);
}

ThreeTensors norm_gradients(const at::Tensor& grad, const at::Tensor& z, const at::Tensor& mean, const at::Tensor& rstd,
                            const at::Tensor& gamma) {
  return TEMPO_CALL(layer_norm_backward, grad, z, mean, rstd, gamma);
}

at::Tensor layer_norm(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta, double eps, NormKeep keep) {
  return LayerNormFunction::apply(z, gamma, beta, eps, keep);
}

at::Tensor is_norm_invertible(const at::Tensor& gamma, const at::Tensor& beta) {
  const at::NoGradGuard no_grad;  // an answer, not a function to differentiate
  return TEMPO_CALL(is_norm_invertible, gamma, beta);
}

}  // namespace tempo::layers
