// Evaluates the cases of op_cases.h: inputs in a type, values with gradients, and their comparison.
#pragma once

#include <gtest/gtest.h>

#include "tests/support/op_cases.h"

namespace tempo::testing {

struct Result {
  at::Tensor value;
  Tensors grads;
};

/// Inputs in `type`, gradients wanted where the case says so. `rounded_to` is what their values have been rounded to before.
inline Tensors prepared(const OpCase& op, at::ScalarType type, at::ScalarType rounded_to = at::kDouble) {
  Tensors inputs = op.inputs;
  for (std::size_t i = 0; i < op.num_differentiable; ++i) {
    inputs[i] = inputs[i].to(rounded_to).to(type).detach().clone().set_requires_grad(true);
  }
  return inputs;
}

inline at::Tensor cotangent(const at::Tensor& value, at::ScalarType rounded_to = at::kDouble) {
  return random(value.sizes(), 99).to(rounded_to).to(value.scalar_type());
}

inline Result evaluate(const OpCase& op, const Apply& apply, Tensors inputs, at::ScalarType rounded_to = at::kDouble) {
  const at::Tensor value = apply(inputs);
  if (value.numel() > 0) value.backward(cotangent(value, rounded_to));
  Result result{value.detach(), {}};
  for (std::size_t i = 0; i < op.num_differentiable; ++i) {
    result.grads.push_back(inputs[i].grad().defined() ? inputs[i].grad() : at::zeros_like(inputs[i]));
  }
  return result;
}

inline void expect_close(const at::Tensor& ours, const at::Tensor& reference, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(ours.sizes(), reference.sizes()) << what;
  if (ours.numel() == 0) return;
  const at::Tensor wide = ours.to(at::kDouble);
  const double scale = std::max(1.0, reference.abs().max().item<double>());
  const double error = (wide - reference).abs().max().item<double>();
  EXPECT_LE(error, tolerance * scale) << what << ", largest reference value " << scale;
}

}  // namespace tempo::testing
