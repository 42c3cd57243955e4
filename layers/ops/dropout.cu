#include "layers/ops/dropout_kernels.cuh"
#include "layers/ops/launch.cuh"
#include "layers/ops/launches.h"

namespace tempo::layers::cuda {

void dropout(void* stream, const math::DropoutKey& key, const float* x, const float* residual,
             const std::int64_t* starts, const std::int64_t* ids, std::int64_t num_sequences, float* y,
             std::uint8_t* mask, std::int64_t rows, std::int64_t size) {
  launch(stream, "dropout_forward", dropout_forward, rows, key, x, residual, starts, ids, num_sequences, y, mask, rows,
         size);
}

void dropout_backward(void* stream, const float* grad, const std::uint8_t* mask, float scale, float* grad_x,
                      std::int64_t size) {
  launch(stream, "dropout_input_grad", dropout_input_grad, blocks_for(size), grad, mask, scale, grad_x, size);
}

}  // namespace tempo::layers::cuda
