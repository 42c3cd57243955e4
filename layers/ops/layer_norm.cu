#include "layers/ops/launch.cuh"
#include "layers/ops/launches.h"
#include "layers/ops/layer_norm_kernels.cuh"

namespace tempo::layers::cuda {

void layer_norm(void* stream, const float* z, const float* gamma, const float* beta, float eps, float* y, float* mean,
                float* rstd, std::int64_t rows, std::int64_t size) {
  launch(stream, "layer_norm_forward", layer_norm_forward, rows, z, gamma, beta, eps, y, mean, rstd, rows, size);
}

void layer_norm_backward(void* stream, const float* grad, const float* z, const float* mean, const float* rstd,
                         const float* gamma, float* grad_z, float* grad_gamma, float* grad_beta, float* sums,
                         RowRuns runs, std::int64_t rows, std::int64_t size) {
  float* beta_sums = sums + runs.num_runs * size;
  launch(stream, "layer_norm_input_grad", layer_norm_input_grad, rows, grad, z, mean, rstd, gamma, grad_z, rows, size);
  launch(stream, "layer_norm_run_sums", layer_norm_run_sums, blocks_for(runs.num_runs * size), grad, z, mean, rstd,
         sums, beta_sums, runs.num_runs, runs.rows_per_run, rows, size);
  launch(stream, "layer_norm_add_runs", layer_norm_add_runs, blocks_for(size), sums, beta_sums, grad_gamma, grad_beta,
         runs.num_runs, size);
}

}  // namespace tempo::layers::cuda
