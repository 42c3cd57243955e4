// The schemas of all operators. Each x.cpp registers its function for CPU and Meta, and for CUDA in builds with it.
#include <torch/library.h>

#include "layers/ops/dispatch.h"
#include "layers/ops/ops.h"

TORCH_LIBRARY(tempo, library) {
  library.def("gelu(Tensor x, int form) -> Tensor");
  library.def("gelu_backward(Tensor grad, Tensor x, int form) -> Tensor");
  library.def("gelu_backward_in_place_(Tensor(a!) grad, Tensor(b!) x, int form) -> ()");
  library.def("gelu_with_mask(Tensor x, int form, int masks) -> (Tensor y, Tensor right)");
  library.def("gelu_backward_from_output(Tensor grad, Tensor y, Tensor right, int form, int masks) -> Tensor");

  library.def("layer_norm(Tensor z, Tensor gamma, Tensor beta, float eps) -> (Tensor y, Tensor mean, Tensor rstd)");
  library.def(
      "layer_norm_backward(Tensor grad, Tensor z, Tensor mean, Tensor rstd, Tensor gamma) -> (Tensor, Tensor, Tensor)");
  library.def("layer_norm_apply(Tensor z, Tensor mean, Tensor rstd, Tensor gamma, Tensor beta) -> Tensor");
  library.def(
      "layer_norm_backward_from_output(Tensor grad, Tensor y, Tensor rstd, Tensor gamma, Tensor beta)"
      " -> (Tensor, Tensor, Tensor)");
  library.def("is_norm_invertible(Tensor gamma, Tensor beta) -> Tensor");

  library.def(
      "dropout(Tensor x, Tensor? residual, Tensor starts, Tensor ids, float drop_probability, int seed, int step,"
      " int site, int keep) -> (Tensor y, Tensor mask)");
  library.def("dropout_backward(Tensor grad, Tensor mask, float drop_probability, int keep) -> Tensor");
  library.def(
      "drop_rows_(Tensor(a!) x, Tensor starts, Tensor ids, float drop_probability, int seed, int step, int site)"
      " -> ()");

  library.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor lengths, Tensor ids, int[] host_starts, int num_heads,"
      " bool is_causal, int keep, int mask_keep, float drop_probability, int seed, int step, int site)"
      " -> (Tensor context, Tensor probabilities, Tensor mask, Tensor dropped, Tensor log_sum_exp)");
  library.def(
      "attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? probabilities, Tensor? mask,"
      " Tensor? dropped, Tensor? log_sum_exp, Tensor lengths, Tensor ids, int[] host_starts, int num_heads,"
      " bool is_causal, int keep, int mask_keep, float drop_probability, int seed, int step, int site)"
      " -> (Tensor, Tensor, Tensor)");

  library.def(
      "embedding_sum(Tensor word, Tensor position, Tensor token_type, Tensor token_ids, Tensor position_ids,"
      " Tensor token_types) -> Tensor");
  library.def("scatter_add_rows(Tensor grad, Tensor index, int num_rows) -> Tensor");
  library.def("gather_rows(Tensor x, Tensor index) -> Tensor");

  library.def(
      "cross_entropy(Tensor logits, Tensor labels, int num_classes, int ignore_label)"
      " -> (Tensor loss_sum, Tensor num_correct, Tensor log_sum_exp)");
  library.def(
      "cross_entropy_backward(Tensor grad, Tensor logits, Tensor labels, Tensor log_sum_exp, int num_classes,"
      " int ignore_label) -> Tensor");

  library.def("sums_of_squares(Tensor[] tensors) -> Tensor");
  library.def(
      "adamw_step_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] moments, Tensor(c!)[] variances,"
      " Tensor gradient_scale, Tensor count, float lr, float beta1, float beta2, float eps, float weight_decay,"
      " bool bias_correction) -> ()");
  library.def(
      "lamb_step_(Tensor(a!)[] parameters, Tensor(d!)[] gradients, Tensor(b!)[] moments, Tensor(c!)[] variances,"
      " Tensor gradient_scale, Tensor count, float lr, float beta1, float beta2, float eps, float weight_decay,"
      " bool bias_correction) -> ()");
}

namespace tempo::layers {

bool has_cuda_kernels() { return kHasCudaKernels; }

}  // namespace tempo::layers
