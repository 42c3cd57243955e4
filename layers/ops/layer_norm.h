// LayerNorm's passes, for operators that contain it. None is differentiable.
//
// Not for: callers outside layers/ops. Thread rule: as ATen's operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace tempo::layers {

struct NormedRows {
  at::Tensor y;           ///< [T, H], contiguous
  at::Tensor mean, rstd;  ///< [T]
};

NormedRows normed_rows(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta, double eps);

/// The y of normed_rows again, bit for bit, from the mean and rstd it gave.
at::Tensor normed_again(const at::Tensor& z, const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& gamma,
                        const at::Tensor& beta);

/// The gradients of z, gamma and beta, from that of y.
std::tuple<at::Tensor, at::Tensor, at::Tensor> norm_gradients(const at::Tensor& grad, const at::Tensor& z,
                                                              const at::Tensor& mean, const at::Tensor& rstd,
                                                              const at::Tensor& gamma);

}  // namespace tempo::layers
