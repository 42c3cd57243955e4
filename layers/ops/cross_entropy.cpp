#include "layers/math/softmax.h"
#include "layers/ops/cpu_loops.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/launches.h"
#include "layers/ops/ops.h"

namespace tempo::layers {
namespace {

using math::Compute;

template <typename T>
TEMPO_INLINE Compute<T> log_sum_exp_loop(const T* logits, std::int64_t size, Compute<T>* row_max) {
  using C = Compute<T>;
  constexpr int kLanes = Lanes<C>::kCount;
  const std::int64_t whole = size - size % kLanes;
  C largest[kLanes];
  for (int l = 0; l < kLanes; ++l) largest[l] = C{logits[0]};
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) largest[l] = C{logits[i + l]} > largest[l] ? C{logits[i + l]} : largest[l];
  }
  for (std::int64_t i = whole; i < size; ++i) {
    largest[i - whole] = C{logits[i]} > largest[i - whole] ? C{logits[i]} : largest[i - whole];
  }
  for (int l = 1; l < kLanes; ++l) largest[0] = largest[l] > largest[0] ? largest[l] : largest[0];
  Lanes<C> total;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) total.lane[l] += math::softmax_weight(C{logits[i + l]}, largest[0]);
  }
  for (std::int64_t i = whole; i < size; ++i) total.lane[i - whole] += math::softmax_weight(C{logits[i]}, largest[0]);
  *row_max = largest[0];
  return largest[0] + std::log(total.sum());
}

/// The label's own element is rounded once, like the others.
template <typename T>
TEMPO_INLINE void gradient_loop(const T* logits, Compute<T> log_sum_exp, Compute<T> scale, std::int64_t size,
                                std::int64_t label, T* grad) {
  using C = Compute<T>;
  for (std::int64_t i = 0; i < size; ++i) grad[i] = scale * math::softmax_weight(C{logits[i]}, log_sum_exp);
  grad[label] = scale * math::softmax_weight(C{logits[label]}, log_sum_exp) - scale;
}

#define TEMPO_CROSS_ENTROPY_ROWS(T, CLONES)                                                              \
  CLONES Compute<T> log_sum_exp_row(const T* logits, std::int64_t size, Compute<T>* row_max) {           \
    return log_sum_exp_loop(logits, size, row_max);                                                      \
  }                                                                                                      \
  CLONES void gradient_row(const T* logits, Compute<T> log_sum_exp, Compute<T> scale, std::int64_t size, \
                           std::int64_t label, T* grad) {                                                \
    gradient_loop(logits, log_sum_exp, scale, size, label, grad);                                        \
  }

TEMPO_CROSS_ENTROPY_ROWS(float, TEMPO_VECTORISED)
TEMPO_CROSS_ENTROPY_ROWS(at::BFloat16, TEMPO_VECTORISED)
TEMPO_CROSS_ENTROPY_ROWS(at::Half, TEMPO_VECTORISED)
TEMPO_CROSS_ENTROPY_ROWS(double, )

using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

ThreeTensors cross_entropy_kernel(const at::Tensor& logits_any, const at::Tensor& labels, std::int64_t num_classes,
                                  std::int64_t ignore_label) {
  const at::Tensor logits = logits_any.contiguous();
  TORCH_CHECK(logits.dim() == 2 && labels.dim() == 1 && labels.size(0) == logits.size(0), "cross_entropy: logits ",
              logits.sizes(), " and labels ", labels.sizes(), " do not fit");
  TORCH_CHECK(num_classes > 0 && num_classes <= logits.size(1), "cross_entropy: ", num_classes, " classes of ",
              logits.size(1), " columns");
  check_contiguous("cross_entropy", {labels});
  const std::int64_t rows = logits.size(0);
  at::Tensor loss_sum = at::zeros({}, compute_options(logits));
  at::Tensor num_correct = at::zeros({}, labels.options());
  at::Tensor log_sum_exp = at::empty({rows}, compute_options(logits));
  at::Tensor is_correct = at::empty({rows}, labels.options().dtype(at::kByte));
  const auto cpu = [&] {
    for_element_type(logits, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const std::int64_t stride = logits.size(1);
      const T* data = logits.const_data_ptr<T>();
      const std::int64_t* label = labels.const_data_ptr<std::int64_t>();
      Compute<T>* log_sums = log_sum_exp.mutable_data_ptr<Compute<T>>();
      std::uint8_t* correct = is_correct.mutable_data_ptr<std::uint8_t>();
      at::parallel_for(0, rows, grain_rows(num_classes), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          if (label[r] == ignore_label) {
            log_sums[r] = 0;
            correct[r] = 0;
            continue;
          }
          Compute<T> row_max = 0;
          log_sums[r] = log_sum_exp_row(data + r * stride, num_classes, &row_max);
          correct[r] = Compute<T>{data[r * stride + label[r]]} == row_max;
        }
      });
      double sum = 0;  // in row order: the same for any number of threads
      for (std::int64_t r = 0; r < rows; ++r) {
        if (label[r] != ignore_label)
          sum += static_cast<double>(log_sums[r]) - static_cast<double>(Compute<T>{data[r * stride + label[r]]});
      }
      *loss_sum.mutable_data_ptr<Compute<T>>() = static_cast<Compute<T>>(sum);
      *num_correct.mutable_data_ptr<std::int64_t>() = std::count(correct, correct + rows, 1);
    });
  };
  on_device(logits, cpu, [&](void* stream) {
    cuda::cross_entropy(stream, logits.const_data_ptr<float>(), labels.const_data_ptr<std::int64_t>(),
                        {logits.size(1), num_classes, ignore_label}, log_sum_exp.mutable_data_ptr<float>(),
                        is_correct.mutable_data_ptr<std::uint8_t>(), loss_sum.mutable_data_ptr<float>(),
                        num_correct.mutable_data_ptr<std::int64_t>(), rows);
  });
  return {loss_sum, num_correct, log_sum_exp};
}

at::Tensor cross_entropy_backward_kernel(const at::Tensor& grad, const at::Tensor& logits_any, const at::Tensor& labels,
                                         const at::Tensor& log_sum_exp, std::int64_t num_classes,
                                         std::int64_t ignore_label) {
  const at::Tensor logits = logits_any.contiguous();
  at::Tensor grad_logits = at::empty_like(logits);
  const auto cpu = [&] {
    for_element_type(logits, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const std::int64_t stride = logits.size(1);
      const Compute<T> scale = *grad.const_data_ptr<Compute<T>>();
      const T* data = logits.const_data_ptr<T>();
      const std::int64_t* label = labels.const_data_ptr<std::int64_t>();
      const Compute<T>* log_sums = log_sum_exp.const_data_ptr<Compute<T>>();
      T* to = grad_logits.mutable_data_ptr<T>();
      at::parallel_for(0, logits.size(0), grain_rows(stride), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          T* row = to + r * stride;
          const std::int64_t used = label[r] == ignore_label ? 0 : num_classes;
          std::fill(row + used, row + stride, T{0});
          if (used == 0) continue;
          gradient_row(data + r * stride, log_sums[r], scale, num_classes, label[r], row);
        }
      });
    });
  };
  on_device(logits, cpu, [&](void* stream) {
    cuda::cross_entropy_backward(stream, grad.const_data_ptr<float>(), logits.const_data_ptr<float>(),
                                 labels.const_data_ptr<std::int64_t>(), {logits.size(1), num_classes, ignore_label},
                                 log_sum_exp.const_data_ptr<float>(), grad_logits.mutable_data_ptr<float>(),
                                 logits.size(0));
  });
  return grad_logits;
}

struct CrossEntropyFunction : Function<CrossEntropyFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& labels,
                               std::int64_t num_classes, std::int64_t ignore_label) {
    auto [loss_sum, num_correct, log_sum_exp] = TEMPO_CALL(cross_entropy, logits, labels, num_classes, ignore_label);
    context->save_for_backward({logits, labels, log_sum_exp});
    context->saved_data["num_classes"] = num_classes;
    context->saved_data["ignore_label"] = ignore_label;
    context->mark_non_differentiable({num_correct});
    return {loss_sum, num_correct};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("cross_entropy");
    const variable_list saved = context->get_saved_variables();
    return {TEMPO_CALL(cross_entropy_backward, grads[0], saved[0], saved[1], saved[2],
                       context->saved_data["num_classes"].toInt(), context->saved_data["ignore_label"].toInt()),
            {},
            {},
            {}};
  }
};

TEMPO_REGISTER(cross_entropy)
TEMPO_REGISTER(cross_entropy_backward)

}  // namespace

CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& labels, std::int64_t num_classes,
                           std::int64_t ignore_label) {
  const variable_list result = CrossEntropyFunction::apply(logits, labels, num_classes, ignore_label);
  return {result[0], result[1]};
}

}  // namespace tempo::layers
