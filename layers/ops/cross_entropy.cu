#include "layers/ops/cross_entropy_kernels.cuh"
#include "layers/ops/launch.cuh"
#include "layers/ops/launches.h"

namespace tempo::layers::cuda {

void cross_entropy(void* stream, const float* logits, const std::int64_t* labels, Classes classes, float* log_sum_exp,
                   std::uint8_t* is_correct, float* loss_sum, std::int64_t* num_correct, std::int64_t rows) {
  launch(stream, "cross_entropy_rows", cross_entropy_rows, rows, logits, labels, classes.columns, classes.num_classes,
         classes.ignore_label, log_sum_exp, is_correct, rows);
  launch(stream, "cross_entropy_sums", cross_entropy_sums, 1, logits, labels, classes.columns, classes.ignore_label,
         log_sum_exp, is_correct, loss_sum, num_correct, rows);
}

void cross_entropy_backward(void* stream, const float* grad, const float* logits, const std::int64_t* labels,
                            Classes classes, const float* log_sum_exp, float* grad_logits, std::int64_t rows) {
  launch(stream, "cross_entropy_logit_grad", cross_entropy_logit_grad, rows, grad, logits, labels, classes.columns,
         classes.num_classes, classes.ignore_label, log_sum_exp, grad_logits, rows);
}

}  // namespace tempo::layers::cuda
