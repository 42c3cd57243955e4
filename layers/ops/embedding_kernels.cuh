// Rows of tables: kernel bodies. Any grid.
#pragma once

#include "layers/ops/block.cuh"

namespace tempo::layers::cuda {

/// One block per row and turn.
__global__ void __launch_bounds__(kThreads)
    embedding_row_sums(const float* word, const float* position, const float* token_type, const std::int64_t* token_ids,
                       const std::int64_t* position_ids, const std::int64_t* token_types, float* sum, std::int64_t rows,
                       std::int64_t size) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* of_word = word + token_ids[row] * size;
    const float* of_position = position + position_ids[row] * size;
    const float* of_type = token_type + token_types[row] * size;
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads)
      sum[row * size + i] = of_word[i] + of_type[i] + of_position[i];
  }
}

/// One column per thread and turn, all rows in order: no two threads meet, and the order of a sum is that of the rows.
/// The chain of additions is long; sorting the index would shorten it.
__global__ void __launch_bounds__(kThreads)
    scatter_add_columns(const float* __restrict__ grad, const std::int64_t* __restrict__ index, float* __restrict__ sum,
                        std::int64_t rows, std::int64_t size) {
  for (std::int64_t column = first_element(); column < size; column += element_stride()) {
    for (std::int64_t row = 0; row < rows; ++row) sum[index[row] * size + column] += grad[row * size + column];
  }
}

/// One block per row and turn.
__global__ void __launch_bounds__(kThreads) gather_row_copies(const float* x, const std::int64_t* index,
                                                              float* gathered, std::int64_t rows, std::int64_t size) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* from = x + index[row] * size;
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads) gathered[row * size + i] = from[i];
  }
}

}  // namespace tempo::layers::cuda
