// What the operators start on a GPU, as plain functions: no CUDA header is needed to call them.
//
// Each one queues its kernels on `stream` (a cudaStream_t) of the current device and returns; nothing waits for the host.
// Pointers are device memory, contiguous, without overlap unless a parameter says "in place". A launch that CUDA refuses
// throws std::runtime_error with the kernel's name. There are no atomics: results depend neither on the grid nor on timing.
// x.cu defines them in builds with CUDA; in tests the same files run in an emulator (tests/support/cuda_emulation.h).
// Not for: checks and allocation (x.cpp). Thread rule: as CUDA streams.
#pragma once

#include <cstdint>

#include "layers/math/dropout.h"
#include "layers/math/gelu.h"
#include "layers/math/optimizer.h"

namespace tempo::layers::cuda {

void gelu(void* stream, math::GeluForm form, const float* x, float* y, std::int64_t size);
void gelu_backward(void* stream, math::GeluForm form, const float* grad, const float* x, float* grad_x,
                   std::int64_t size);
/// grad, x: in place, gradient of the output -> that of x, and x -> the output.
void gelu_backward_in_place(void* stream, math::GeluForm form, float* grad, float* x, std::int64_t size);
/// right: a bit per element where `packed`, a byte otherwise.
void gelu_with_mask(void* stream, math::GeluForm form, bool packed, const float* x, float* y, std::uint8_t* right,
                    std::int64_t size);
void gelu_backward_from_output(void* stream, math::GeluForm form, bool packed, const float* grad, const float* y,
                               const std::uint8_t* right, float* grad_x, std::int64_t size);

/// z, y [rows, size]; gamma, beta [size]; mean, rstd [rows].
void layer_norm(void* stream, const float* z, const float* gamma, const float* beta, float eps, float* y, float* mean,
                float* rstd, std::int64_t rows, std::int64_t size);

/// The gradients of gamma and beta are summed over `num_runs` runs of `rows_per_run` rows, then over the runs: as on the
/// CPU.
struct RowRuns {
  std::int64_t num_runs;
  std::int64_t rows_per_run;
};

/// What a backward pass of LayerNorm writes. rows may be 0: then the gradients of gamma and beta become 0.
struct LayerNormGradients {
  float* z;      ///< [rows, size]
  float* gamma;  ///< [size]
  float* beta;   ///< [size]
  float* sums;   ///< [2, num_runs, size], scratch
  RowRuns runs;
  std::int64_t rows;
  std::int64_t size;
};

void layer_norm_backward(void* stream, const float* grad, const float* z, const float* mean, const float* rstd,
                         const float* gamma, const LayerNormGradients& to);
/// The same from the output y instead of z and the mean.
void layer_norm_backward_from_output(void* stream, const float* grad, const float* y, const float* rstd,
                                     const float* gamma, const float* beta, const LayerNormGradients& to);
/// The y that layer_norm gave, from the mean and rstd it gave.
void layer_norm_apply(void* stream, const float* z, const float* mean, const float* rstd, const float* gamma,
                      const float* beta, float* y, std::int64_t rows, std::int64_t size);
/// gamma, beta [size]; one answer.
void is_norm_invertible(void* stream, const float* gamma, const float* beta, bool* answer, std::int64_t size);

/// x, residual, y [rows, size]; starts [num_sequences + 1], ids [num_sequences]. `residual` may be null. mask [rows, size], or
/// [rows, ceil(size / 8)] where it is packed, or null. y may be x.
void dropout(void* stream, const math::DropoutKey& key, const float* x, const float* residual,
             const std::int64_t* starts, const std::int64_t* ids, std::int64_t num_sequences, float* y,
             std::uint8_t* mask, bool is_packed, std::int64_t rows, std::int64_t size);
void dropout_backward(void* stream, const float* grad, const std::uint8_t* mask, bool is_packed, float scale,
                      float* grad_x, std::int64_t rows, std::int64_t size);

/// One sequence of a batch in attention. Its S x S tensors are [num_heads, slots, slots].
struct AttentionSequence {
  std::int64_t num_heads;
  std::int64_t slots;
  const std::int64_t* length;   ///< one number on the device: real tokens
  const std::int64_t* example;  ///< one number on the device: keys dropout
};

/// weights: in place, products of queries and keys -> probabilities, exactly 0 in padded rows and columns. `mask` and
/// `dropped` are null where nothing is dropped.
void attention_softmax(void* stream, const AttentionSequence& sequence, const math::DropoutKey& key, float scale,
                       float* weights, std::uint8_t* mask, float* dropped);
/// grad: in place, gradient of the dropped probabilities -> that of the products. All [rows, slots]. `mask` may be null.
void attention_score_grad(void* stream, std::int64_t rows, std::int64_t slots, const float* probabilities,
                          const std::uint8_t* mask, float keep_scale, float score_scale, float* grad);

/// ids [rows] int64, tables [.., size], sum [rows, size].
void embedding_sum(void* stream, const float* word, const float* position, const float* token_type,
                   const std::int64_t* token_ids, const std::int64_t* position_ids, const std::int64_t* token_types,
                   float* sum, std::int64_t rows, std::int64_t size);
/// sum[index[r]] += grad[r] for every row r, in order. grad [rows, size].
void scatter_add_rows(void* stream, const float* grad, const std::int64_t* index, float* sum, std::int64_t rows,
                      std::int64_t size);
void gather_rows(void* stream, const float* x, const std::int64_t* index, float* gathered, std::int64_t rows,
                 std::int64_t size);

/// logits [rows, columns], of which the first num_classes columns count.
struct Classes {
  std::int64_t columns;
  std::int64_t num_classes;
  std::int64_t ignore_label;
};

/// `is_correct` [rows] is scratch.
void cross_entropy(void* stream, const float* logits, const std::int64_t* labels, Classes classes, float* log_sum_exp,
                   std::uint8_t* is_correct, float* loss_sum, std::int64_t* num_correct, std::int64_t rows);
/// `grad` is one number on the device.
void cross_entropy_backward(void* stream, const float* grad, const float* logits, const std::int64_t* labels,
                            Classes classes, const float* log_sum_exp, float* grad_logits, std::int64_t rows);

/// Doubles that sum_of_squares needs as scratch: partial sums, a fixed number of them.
inline constexpr std::int64_t kSquareSums = 512;
/// Doubles that begin_update needs as scratch: room for AdamScalars.
inline constexpr std::int64_t kAdamScratch = (sizeof(math::AdamScalars) + sizeof(double) - 1) / sizeof(double);
/// Doubles that LAMB needs as scratch: those, and for lamb_step the partial sums of two norms, and the ratio.
inline constexpr std::int64_t kLambScratch = kAdamScratch + 2 * kSquareSums + 1;

/// *total = sum of squares, in double.
void sum_of_squares(void* stream, const float* x, std::int64_t size, double* scratch, double* total);

/// One tensor of an optimizer step; all four have `size` elements.
struct AdamTensors {
  float* parameter;
  float* gradient;
  float* moment;
  float* variance;
  std::int64_t size;
};

/// What all tensors of a step share, on the device.
struct AdamUpdate {
  const math::AdamScalars* scalars;
  const float* gradient_scale;
  const std::int64_t* count;  ///< 0: nothing is changed
};

/// Computes the scalars into `scratch`.
AdamUpdate begin_update(void* stream, const math::AdamRule& rule, const float* gradient_scale,
                        const std::int64_t* count, double* scratch);
void adamw_step(void* stream, const AdamTensors& tensors, const AdamUpdate& update, float lr, float decay_factor);
/// Leaves the direction in the gradient. `scratch` has kLambScratch - kAdamScratch doubles.
void lamb_step(void* stream, const AdamTensors& tensors, const AdamUpdate& update, double lr, double weight_decay,
               double* scratch);

}  // namespace tempo::layers::cuda
