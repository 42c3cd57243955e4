#include "layers/ops/embedding_kernels.cuh"
#include "layers/ops/launch.cuh"
#include "layers/ops/launches.h"

namespace tempo::layers::cuda {

void embedding_sum(void* stream, const float* word, const float* position, const float* token_type,
                   const std::int64_t* token_ids, const std::int64_t* position_ids, const std::int64_t* token_types,
                   float* sum, std::int64_t rows, std::int64_t size) {
  launch(stream, "embedding_row_sums", embedding_row_sums, rows, word, position, token_type, token_ids, position_ids,
         token_types, sum, rows, size);
}

void scatter_add_rows(void* stream, const float* grad, const std::int64_t* index, float* sum, std::int64_t rows,
                      std::int64_t size) {
  launch(stream, "scatter_add_columns", scatter_add_columns, blocks_for(size), grad, index, sum, rows, size);
}

void gather_rows(void* stream, const float* x, const std::int64_t* index, float* gathered, std::int64_t rows,
                 std::int64_t size) {
  launch(stream, "gather_row_copies", gather_row_copies, rows, x, index, gathered, rows, size);
}

}  // namespace tempo::layers::cuda
