#include "layers/ops/launch.cuh"
#include "layers/ops/launches.h"
#include "layers/ops/optimizer_kernels.cuh"

namespace tempo::layers::cuda {

void sum_of_squares(void* stream, const float* x, std::int64_t size, double* scratch, double* total) {
  const std::int64_t num_sums = std::min(kSquareSums, blocks_for(size));
  launch(stream, "square_sums", square_sums, num_sums, x, size, scratch, num_sums);
  launch(stream, "add_square_sums", add_square_sums, 1, scratch, num_sums, total);
}

void adamw_step(void* stream, const AdamTensors& tensors, const math::AdamScalars& scalars, float lr,
                float decay_factor, const float* gradient_scale) {
  launch(stream, "adamw_update", adamw_update, blocks_for(tensors.size), scalars, lr, decay_factor, gradient_scale,
         tensors.parameter, tensors.gradient, tensors.moment, tensors.variance, tensors.size);
}

void lamb_step(void* stream, const AdamTensors& tensors, const math::AdamScalars& scalars, double lr,
               double weight_decay, const float* gradient_scale, double* scratch) {
  launch(stream, "lamb_direction", lamb_direction, blocks_for(tensors.size), scalars, static_cast<float>(weight_decay),
         gradient_scale, tensors.parameter, tensors.gradient, tensors.moment, tensors.variance, tensors.size);
  double* ratio = nullptr;
  if (weight_decay != 0) {
    const std::int64_t num_sums = std::min(kSquareSums, blocks_for(tensors.size));
    double* direction_sums = scratch + kSquareSums;
    ratio = scratch + 2 * kSquareSums;
    launch(stream, "square_sums", square_sums, num_sums, tensors.parameter, tensors.size, scratch, num_sums);
    launch(stream, "square_sums", square_sums, num_sums, tensors.gradient, tensors.size, direction_sums, num_sums);
    launch(stream, "lamb_norm_ratio", lamb_norm_ratio, 1, scratch, direction_sums, num_sums, ratio);
  }
  launch(stream, "lamb_update", lamb_update, blocks_for(tensors.size), lr, ratio, tensors.gradient, tensors.parameter,
         tensors.size);
}

}  // namespace tempo::layers::cuda
