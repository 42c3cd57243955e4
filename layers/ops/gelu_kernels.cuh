// GELU: kernel bodies. Any grid; one element per thread and turn.
#pragma once

#include "layers/math/gelu.h"
#include "layers/ops/block.cuh"

namespace tempo::layers::cuda {

template <typename Form>
__global__ void __launch_bounds__(kThreads) gelu_forward(const float* x, float* y, std::int64_t size) {
  for (std::int64_t i = first_element(); i < size; i += element_stride()) y[i] = Form::value(x[i]);
}

template <typename Form>
__global__ void __launch_bounds__(kThreads)
    gelu_input_grad(const float* grad, const float* x, float* grad_x, std::int64_t size) {
  for (std::int64_t i = first_element(); i < size; i += element_stride())
    grad_x[i] = grad[i] * Form::value_and_slope(x[i]).slope;
}

}  // namespace tempo::layers::cuda
