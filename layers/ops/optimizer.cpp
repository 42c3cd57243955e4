#include "layers/math/optimizer.h"

#include <vector>

#include "layers/ops/cpu_loops.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/launches.h"
#include "layers/ops/ops.h"

namespace tempo::layers {
namespace {

// Sums run over chunks of this many elements, in float lanes within a chunk and in double over the chunks, in order.
constexpr std::int64_t kChunk = 4096;

TEMPO_VECTORISED double sum_of_squares_chunk(const float* x, std::int64_t size) {
  constexpr int kLanes = Lanes<float>::kCount;
  Lanes<double> total;
  const std::int64_t whole = size - size % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const double value = x[i + l];
      total.lane[l] = std::fma(value, value, total.lane[l]);
    }
  }
  for (std::int64_t i = whole; i < size; ++i) {
    const double value = x[i];
    total.lane[i - whole] = std::fma(value, value, total.lane[i - whole]);
  }
  return total.sum();
}

TEMPO_VECTORISED void adamw_chunk(const math::AdamScalars& scalars, float lr, float decay_factor, float gradient_scale,
                                  float* p, const float* g, float* m, float* v, std::int64_t size) {
  const math::AdamScalars s = scalars;
  for (std::int64_t i = 0; i < size; ++i) {
    const float u = math::adam_direction(s, g[i] * gradient_scale, m[i], v[i]);
    p[i] = std::fma(-lr, u, p[i] * decay_factor);
  }
}

/// Leaves u + wd p in the gradient.
TEMPO_VECTORISED void lamb_direction_chunk(const math::AdamScalars& scalars, float weight_decay, float gradient_scale,
                                           const float* p, float* g, float* m, float* v, std::int64_t size) {
  const math::AdamScalars s = scalars;
  for (std::int64_t i = 0; i < size; ++i) {
    g[i] = std::fma(weight_decay, p[i], math::adam_direction(s, g[i] * gradient_scale, m[i], v[i]));
  }
}

TEMPO_VECTORISED void add_scaled_chunk(float factor, const float* direction, float* p, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) p[i] = std::fma(factor, direction[i], p[i]);
}

void check_lists(const char* name, at::TensorList parameters, at::TensorList gradients, at::TensorList moments,
                 at::TensorList variances) {
  TORCH_CHECK(parameters.size() == gradients.size() && parameters.size() == moments.size() &&
                  parameters.size() == variances.size(),
              name, ": the lists differ in length");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (const at::Tensor& tensor : {parameters[i], gradients[i], moments[i], variances[i]}) {
      TORCH_CHECK(
          tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.numel() == parameters[i].numel(), name,
          ": tensor ", i, " is not a contiguous float32 tensor of its parameter's size");
    }
  }
}

cuda::AdamTensors adam_tensors(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& moment,
                               const at::Tensor& variance) {
  return {parameter.mutable_data_ptr<float>(), gradient.mutable_data_ptr<float>(), moment.mutable_data_ptr<float>(),
          variance.mutable_data_ptr<float>(), parameter.numel()};
}

/// Calls run(offset, size) for every chunk of a tensor of `numel` elements, in parallel.
template <typename Run>
void for_each_chunk(std::int64_t numel, Run&& run) {
  at::parallel_for(0, numel, kGrainElements, [&](std::int64_t begin, std::int64_t end) { run(begin, end - begin); });
}

double sum_of_squares_of(const float* data, std::int64_t numel) {
  const std::int64_t num_chunks = (numel + kChunk - 1) / kChunk;
  std::vector<double> sums(num_chunks);
  at::parallel_for(0, num_chunks, kGrainElements / kChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      sums[c] = sum_of_squares_chunk(data + c * kChunk, std::min(kChunk, numel - c * kChunk));
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

at::Tensor sums_of_squares_kernel(at::TensorList tensors) {
  TORCH_CHECK(!tensors.empty(), "sums_of_squares: the list is empty");
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.scalar_type() == at::kFloat && tensor.is_contiguous(),
                "sums_of_squares takes contiguous float32 tensors");
  }
  at::Tensor result = at::empty({static_cast<std::int64_t>(tensors.size())}, tensors[0].options().dtype(at::kDouble));
  at::Tensor scratch = at::empty({cuda::kSquareSums}, result.options());
  const auto cpu = [&] {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      result.mutable_data_ptr<double>()[i] = sum_of_squares_of(tensors[i].const_data_ptr<float>(), tensors[i].numel());
    }
  };
  on_device(result, cpu, [&](void* stream) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      cuda::sum_of_squares(stream, tensors[i].const_data_ptr<float>(), tensors[i].numel(),
                           scratch.mutable_data_ptr<double>(), result.mutable_data_ptr<double>() + i);
    }
  });
  return result;
}

void adamw_step__kernel(at::TensorList parameters, at::TensorList gradients, at::TensorList moments,
                        at::TensorList variances, const at::Tensor& gradient_scale, const at::Tensor& count, double lr,
                        double beta1, double beta2, double eps, double weight_decay, bool bias_correction) {
  check_lists("adamw_step_", parameters, gradients, moments, variances);
  const math::AdamRule rule{beta1, beta2, eps, bias_correction};
  at::Tensor scratch = at::empty({cuda::kAdamScratch}, gradient_scale.options().dtype(at::kDouble));
  const auto cpu = [&] {
    const std::int64_t t = *count.const_data_ptr<std::int64_t>();
    if (t == 0) return;
    const math::AdamScalars scalars = math::adam_scalars(rule, t);
    const float scale = *gradient_scale.const_data_ptr<float>();
    const auto rate = static_cast<float>(lr);
    const auto decay_factor = static_cast<float>(1 - lr * weight_decay);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      float* p = parameters[i].mutable_data_ptr<float>();
      const float* g = gradients[i].const_data_ptr<float>();
      float* m = moments[i].mutable_data_ptr<float>();
      float* v = variances[i].mutable_data_ptr<float>();
      for_each_chunk(parameters[i].numel(), [&](std::int64_t at, std::int64_t size) {
        adamw_chunk(scalars, rate, decay_factor, scale, p + at, g + at, m + at, v + at, size);
      });
    }
  };
  on_device(gradient_scale, cpu, [&](void* stream) {
    const cuda::AdamUpdate update =
        cuda::begin_update(stream, rule, gradient_scale.const_data_ptr<float>(), count.const_data_ptr<std::int64_t>(),
                           scratch.mutable_data_ptr<double>());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      cuda::adamw_step(stream, adam_tensors(parameters[i], gradients[i], moments[i], variances[i]), update,
                       static_cast<float>(lr), static_cast<float>(1 - lr * weight_decay));
    }
  });
}

void lamb_step__kernel(at::TensorList parameters, at::TensorList gradients, at::TensorList moments,
                       at::TensorList variances, const at::Tensor& gradient_scale, const at::Tensor& count, double lr,
                       double beta1, double beta2, double eps, double weight_decay, bool bias_correction) {
  check_lists("lamb_step_", parameters, gradients, moments, variances);
  const math::AdamRule rule{beta1, beta2, eps, bias_correction};
  at::Tensor scratch = at::empty({cuda::kLambScratch}, gradient_scale.options().dtype(at::kDouble));
  const auto cpu = [&] {
    const std::int64_t t = *count.const_data_ptr<std::int64_t>();
    if (t == 0) return;
    const math::AdamScalars scalars = math::adam_scalars(rule, t);
    const float scale = *gradient_scale.const_data_ptr<float>();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::int64_t numel = parameters[i].numel();
      float* p = parameters[i].mutable_data_ptr<float>();
      float* g = gradients[i].mutable_data_ptr<float>();
      float* m = moments[i].mutable_data_ptr<float>();
      float* v = variances[i].mutable_data_ptr<float>();
      for_each_chunk(numel, [&](std::int64_t at, std::int64_t size) {
        lamb_direction_chunk(scalars, static_cast<float>(weight_decay), scale, p + at, g + at, m + at, v + at, size);
      });
      double ratio = 1;
      if (weight_decay != 0) ratio = math::lamb_ratio(sum_of_squares_of(p, numel), sum_of_squares_of(g, numel));
      const auto factor = static_cast<float>(-lr * ratio);
      for_each_chunk(numel,
                     [&](std::int64_t at, std::int64_t size) { add_scaled_chunk(factor, g + at, p + at, size); });
    }
  };
  on_device(gradient_scale, cpu, [&](void* stream) {
    double* sums = scratch.mutable_data_ptr<double>() + cuda::kAdamScratch;
    const cuda::AdamUpdate update =
        cuda::begin_update(stream, rule, gradient_scale.const_data_ptr<float>(), count.const_data_ptr<std::int64_t>(),
                           scratch.mutable_data_ptr<double>());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      cuda::lamb_step(stream, adam_tensors(parameters[i], gradients[i], moments[i], variances[i]), update, lr,
                      weight_decay, sums);
    }
  });
}

TEMPO_REGISTER(sums_of_squares)
TEMPO_REGISTER(adamw_step_)
TEMPO_REGISTER(lamb_step_)

}  // namespace

at::Tensor sums_of_squares(at::TensorList tensors) { return TEMPO_CALL(sums_of_squares, tensors); }

void adamw_step_(at::TensorList parameters, at::TensorList gradients, at::TensorList moments, at::TensorList variances,
                 const at::Tensor& gradient_scale, const at::Tensor& count, const AdamStep& step) {
  TEMPO_CALL(adamw_step_, parameters, gradients, moments, variances, gradient_scale, count, step.lr, step.beta1,
             step.beta2, step.eps, step.weight_decay, step.bias_correction);
}

void lamb_step_(at::TensorList parameters, at::TensorList gradients, at::TensorList moments, at::TensorList variances,
                const at::Tensor& gradient_scale, const at::Tensor& count, const AdamStep& step) {
  TEMPO_CALL(lamb_step_, parameters, gradients, moments, variances, gradient_scale, count, step.lr, step.beta1,
             step.beta2, step.eps, step.weight_decay, step.bias_correction);
}

}  // namespace tempo::layers
