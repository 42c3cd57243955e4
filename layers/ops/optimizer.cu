#include "layers/ops/launch.cuh"
#include "layers/ops/launches.h"
#include "layers/ops/optimizer_kernels.cuh"

namespace tempo::layers::cuda {

void sum_of_squares(void* stream, const float* x, std::int64_t size, double* scratch, double* total) {
  const std::int64_t num_sums = std::min(kSquareSums, blocks_for(size));
  launch(stream, "square_sums", square_sums, num_sums, x, size, scratch, num_sums);
  launch(stream, "add_square_sums", add_square_sums, 1, scratch, num_sums, total);
}

AdamUpdate begin_update(void* stream, const math::AdamRule& rule, const float* gradient_scale,
                        const std::int64_t* count, double* scratch) {
  auto* scalars = reinterpret_cast<math::AdamScalars*>(scratch);
  launch(stream, "adam_scalars", adam_scalars, 1, rule, count, scalars);
  return {scalars, gradient_scale, count};
}

void adamw_step(void* stream, const AdamTensors& tensors, const AdamUpdate& update, float lr, float decay_factor) {
  launch(stream, "adamw_update", adamw_update, blocks_for(tensors.size), update, lr, decay_factor, tensors.parameter,
         tensors.gradient, tensors.moment, tensors.variance, tensors.size);
}

void lamb_step(void* stream, const AdamTensors& tensors, const AdamUpdate& update, double lr, double weight_decay,
               double* scratch) {
  launch(stream, "lamb_direction", lamb_direction, blocks_for(tensors.size), update, static_cast<float>(weight_decay),
         tensors.parameter, tensors.gradient, tensors.moment, tensors.variance, tensors.size);
  double* ratio = nullptr;
  if (weight_decay != 0) {
    const std::int64_t num_sums = std::min(kSquareSums, blocks_for(tensors.size));
    double* direction_sums = scratch + kSquareSums;
    ratio = scratch + 2 * kSquareSums;
    launch(stream, "square_sums", square_sums, num_sums, tensors.parameter, tensors.size, scratch, num_sums);
    launch(stream, "square_sums", square_sums, num_sums, tensors.gradient, tensors.size, direction_sums, num_sums);
    launch(stream, "lamb_norm_ratio", lamb_norm_ratio, 1, scratch, direction_sums, num_sums, ratio);
  }
  launch(stream, "lamb_update", lamb_update, blocks_for(tensors.size), update, lr, ratio, tensors.gradient,
         tensors.parameter, tensors.size);
}

}  // namespace tempo::layers::cuda
