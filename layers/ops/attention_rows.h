// The rows of attention on the CPU: from products to probabilities, to dropped ones, and back to the gradient of the products.
//
// Not for: callers outside layers/ops. Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace tempo::layers {

// Each of these is there for float and double.

/// In place: products of one query with `size` keys -> probabilities of the products times `scale`. Returns the log of the sum of
/// exponentials.
float softmax_row(float* scores, float scale, std::int64_t size);
double softmax_row(double* scores, double scale, std::int64_t size);

/// In place: the probabilities again, from the products and that logarithm.
void softmax_row_again(float* scores, float scale, float log_sum_exp, std::int64_t size);
void softmax_row_again(double* scores, double scale, double log_sum_exp, std::int64_t size);

/// dropped = probabilities x scale where mask is not 0, else 0.
void drop_row(const float* probabilities, const std::uint8_t* mask, float scale, std::int64_t size, float* dropped);
void drop_row(const double* probabilities, const std::uint8_t* mask, double scale, std::int64_t size, double* dropped);

/// In place: gradient of the dropped probabilities -> that of the products. `mask` may be null.
void score_grad_row(float* grad, const float* probabilities, const std::uint8_t* mask, float keep_scale,
                    float score_scale, std::int64_t size);
void score_grad_row(double* grad, const double* probabilities, const std::uint8_t* mask, double keep_scale,
                    double score_scale, std::int64_t size);

}  // namespace tempo::layers
