#include "layers/ops/launch.cuh"
#include "layers/ops/launches.h"
#include "layers/ops/layer_norm_kernels.cuh"

namespace tempo::layers::cuda {

void layer_norm(void* stream, const float* z, const float* gamma, const float* beta, float eps, float* y, float* mean,
                float* rstd, std::int64_t rows, std::int64_t size) {
  launch(stream, "layer_norm_forward", layer_norm_forward, rows, z, gamma, beta, eps, y, mean, rstd, rows, size);
}

namespace {

template <typename XHat>
void backward(void* stream, const float* grad, const XHat& x_hat, const float* rstd, const float* gamma,
              const LayerNormGradients& to) {
  const std::int64_t num_sums = to.runs.num_runs * to.size;
  float* beta_sums = to.sums + num_sums;
  launch(stream, "layer_norm_input_grad", layer_norm_input_grad<XHat>, to.rows, grad, x_hat, rstd, gamma, to.z, to.rows,
         to.size);
  launch(stream, "layer_norm_run_sums", layer_norm_run_sums<XHat>, blocks_for(num_sums), grad, x_hat, to.sums,
         beta_sums, to.runs.num_runs, to.runs.rows_per_run, to.rows, to.size);
  launch(stream, "layer_norm_add_runs", layer_norm_add_runs, blocks_for(to.size), to.sums, beta_sums, to.gamma, to.beta,
         to.runs.num_runs, to.size);
}

}  // namespace

void layer_norm_backward(void* stream, const float* grad, const float* z, const float* mean, const float* rstd,
                         const float* gamma, const LayerNormGradients& to) {
  backward(stream, grad, NormInput{z, mean, rstd}, rstd, gamma, to);
}

void layer_norm_backward_from_output(void* stream, const float* grad, const float* y, const float* rstd,
                                     const float* gamma, const float* beta, const LayerNormGradients& to) {
  backward(stream, grad, NormOutput{y, gamma, beta}, rstd, gamma, to);
}

void layer_norm_apply(void* stream, const float* z, const float* mean, const float* rstd, const float* gamma,
                      const float* beta, float* y, std::int64_t rows, std::int64_t size) {
  launch(stream, "layer_norm_again", layer_norm_again, rows, z, mean, rstd, gamma, beta, y, rows, size);
}

void is_norm_invertible(void* stream, const float* gamma, const float* beta, bool* answer, std::int64_t size) {
  launch(stream, "layer_norm_invertible", layer_norm_invertible, 1, gamma, beta, answer, size);
}

}  // namespace tempo::layers::cuda
