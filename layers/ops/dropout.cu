#include "layers/ops/dropout_kernels.cuh"
#include "layers/ops/launch.cuh"
#include "layers/ops/launches.h"

namespace tempo::layers::cuda {

void dropout(void* stream, const math::DropoutKey& key, const float* x, const float* residual,
             const std::int64_t* starts, const std::int64_t* ids, std::int64_t num_sequences, float* y,
             std::uint8_t* mask, bool is_packed, std::int64_t rows, std::int64_t size) {
  launch(stream, "dropout_forward", dropout_forward, rows, key, x, residual, starts, ids, num_sequences, y, mask,
         is_packed, rows, size);
}

void dropout_backward(void* stream, const float* grad, const std::uint8_t* mask, bool is_packed, float scale,
                      float* grad_x, std::int64_t rows, std::int64_t size) {
  if (is_packed) {
    launch(stream, "packed_dropout_input_grad", packed_dropout_input_grad, rows, grad, mask, scale, grad_x, rows, size);
  } else {
    launch(stream, "dropout_input_grad", dropout_input_grad, blocks_for(rows * size), grad, mask, scale, grad_x,
           rows * size);
  }
}

}  // namespace tempo::layers::cuda
