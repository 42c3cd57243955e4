// GELU: kernel bodies. Any grid; one element per thread and turn, or the eight of a mask's byte.
#pragma once

#include "layers/math/gelu.h"
#include "layers/math/gelu_inverse.h"
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

template <typename Form>
__global__ void __launch_bounds__(kThreads) gelu_input_grad_in_place(float* grad, float* x, std::int64_t size) {
  for (std::int64_t i = first_element(); i < size; i += element_stride()) {
    const math::ValueAndSlope<float> at = Form::value_and_slope(x[i]);
    grad[i] *= at.slope;
    x[i] = at.value;
  }
}

template <typename Form>
__global__ void __launch_bounds__(kThreads)
    gelu_forward_with_bytes(const float* x, float* y, std::uint8_t* right, std::int64_t size) {
  for (std::int64_t i = first_element(); i < size; i += element_stride()) {
    right[i] = math::GeluInverse<Form>::is_right(x[i]);
    y[i] = math::GeluInverse<Form>::value(x[i]);
  }
}

template <typename Form>
__global__ void __launch_bounds__(kThreads)
    gelu_output_grad_with_bytes(const float* grad, const float* y, const std::uint8_t* right, float* grad_x,
                                std::int64_t size) {
  for (std::int64_t i = first_element(); i < size; i += element_stride())
    grad_x[i] = grad[i] * math::GeluInverse<Form>::slope(y[i], right[i] != 0);
}

/// Bits: a thread has the eight elements of one byte, so that no two write to one.
template <typename Form>
__global__ void __launch_bounds__(kThreads)
    gelu_forward_with_bits(const float* x, float* y, std::uint8_t* right, std::int64_t size) {
  for (std::int64_t byte = first_element(); byte * 8 < size; byte += element_stride()) {
    unsigned bits = 0;
#pragma unroll
    for (int lane = 0; lane < 8; ++lane) {
      const std::int64_t i = byte * 8 + lane;
      if (i >= size) break;
      bits |= (math::GeluInverse<Form>::is_right(x[i]) ? 1u : 0u) << lane;
      y[i] = math::GeluInverse<Form>::value(x[i]);
    }
    right[byte] = static_cast<std::uint8_t>(bits);
  }
}

template <typename Form>
__global__ void __launch_bounds__(kThreads)
    gelu_output_grad_with_bits(const float* grad, const float* y, const std::uint8_t* right, float* grad_x,
                               std::int64_t size) {
  for (std::int64_t i = first_element(); i < size; i += element_stride())
    grad_x[i] = grad[i] * math::GeluInverse<Form>::slope(y[i], (right[i / 8] >> (i % 8) & 1) != 0);
}

}  // namespace tempo::layers::cuda
