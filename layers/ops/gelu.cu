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

}  // namespace tempo::layers::cuda
