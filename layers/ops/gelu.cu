#include "layers/ops/gelu_kernels.cuh"
#include "layers/ops/launch.cuh"
#include "layers/ops/launches.h"

namespace tempo::layers::cuda {

void gelu(void* stream, math::GeluForm form, const float* x, float* y, std::int64_t size) {
  const auto kernel = form == math::GeluForm::kExact ? gelu_forward<math::GeluExact> : gelu_forward<math::GeluTanh>;
  launch(stream, "gelu_forward", kernel, blocks_for(size), x, y, size);
}

void gelu_backward(void* stream, math::GeluForm form, const float* grad, const float* x, float* grad_x,
                   std::int64_t size) {
  const auto kernel =
      form == math::GeluForm::kExact ? gelu_input_grad<math::GeluExact> : gelu_input_grad<math::GeluTanh>;
  launch(stream, "gelu_input_grad", kernel, blocks_for(size), grad, x, grad_x, size);
}

void gelu_backward_in_place(void* stream, math::GeluForm form, float* grad, float* x, std::int64_t size) {
  const auto kernel = form == math::GeluForm::kExact ? gelu_input_grad_in_place<math::GeluExact>
                                                     : gelu_input_grad_in_place<math::GeluTanh>;
  launch(stream, "gelu_input_grad_in_place", kernel, blocks_for(size), grad, x, size);
}

void gelu_with_mask(void* stream, math::GeluForm form, bool packed, const float* x, float* y, std::uint8_t* right,
                    std::int64_t size) {
  if (packed) {
    const auto kernel = form == math::GeluForm::kExact ? gelu_forward_with_bits<math::GeluExact>
                                                       : gelu_forward_with_bits<math::GeluTanh>;
    launch(stream, "gelu_forward_with_bits", kernel, blocks_for((size + 7) / 8), x, y, right, size);
  } else {
    const auto kernel = form == math::GeluForm::kExact ? gelu_forward_with_bytes<math::GeluExact>
                                                       : gelu_forward_with_bytes<math::GeluTanh>;
    launch(stream, "gelu_forward_with_bytes", kernel, blocks_for(size), x, y, right, size);
  }
}

void gelu_backward_from_output(void* stream, math::GeluForm form, bool packed, const float* grad, const float* y,
                               const std::uint8_t* right, float* grad_x, std::int64_t size) {
  if (packed) {
    const auto kernel = form == math::GeluForm::kExact ? gelu_output_grad_with_bits<math::GeluExact>
                                                       : gelu_output_grad_with_bits<math::GeluTanh>;
    launch(stream, "gelu_output_grad_with_bits", kernel, blocks_for(size), grad, y, right, grad_x, size);
  } else {
    const auto kernel = form == math::GeluForm::kExact ? gelu_output_grad_with_bytes<math::GeluExact>
                                                       : gelu_output_grad_with_bytes<math::GeluTanh>;
    launch(stream, "gelu_output_grad_with_bytes", kernel, blocks_for(size), grad, y, right, grad_x, size);
  }
}

}  // namespace tempo::layers::cuda
