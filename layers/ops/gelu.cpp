#include "layers/math/gelu.h"

#include "layers/ops/cpu_loops.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/launches.h"
#include "layers/ops/ops.h"

namespace tempo::layers {
namespace {

template <typename Form, typename T>
TEMPO_INLINE void forward_loop(const T* x, T* y, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) y[i] = Form::value(x[i]);
}

template <typename Form, typename T>
TEMPO_INLINE void backward_loop(const T* grad, const T* x, T* grad_x, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) grad_x[i] = grad[i] * Form::value_and_slope(x[i]).slope;
}

TEMPO_VECTORISED void forward(GeluForm form, const float* x, float* y, std::int64_t size) {
  form == GeluForm::kExact ? forward_loop<math::GeluExact>(x, y, size) : forward_loop<math::GeluTanh>(x, y, size);
}
void forward(GeluForm form, const double* x, double* y, std::int64_t size) {
  form == GeluForm::kExact ? forward_loop<math::GeluExact>(x, y, size) : forward_loop<math::GeluTanh>(x, y, size);
}
TEMPO_VECTORISED void backward(GeluForm form, const float* grad, const float* x, float* grad_x, std::int64_t size) {
  form == GeluForm::kExact ? backward_loop<math::GeluExact>(grad, x, grad_x, size)
                           : backward_loop<math::GeluTanh>(grad, x, grad_x, size);
}
void backward(GeluForm form, const double* grad, const double* x, double* grad_x, std::int64_t size) {
  form == GeluForm::kExact ? backward_loop<math::GeluExact>(grad, x, grad_x, size)
                           : backward_loop<math::GeluTanh>(grad, x, grad_x, size);
}

at::Tensor gelu_kernel(const at::Tensor& x_any, std::int64_t form) {
  const at::Tensor x = x_any.contiguous();
  at::Tensor y = at::empty_like(x);
  const auto cpu = [&] {
    for_element_type(x, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = x.const_data_ptr<T>();
      T* to = y.mutable_data_ptr<T>();
      at::parallel_for(0, x.numel(), kGrainElements, [&](std::int64_t begin, std::int64_t end) {
        forward(GeluForm{form}, from + begin, to + begin, end - begin);
      });
    });
  };
  on_device(x, cpu, [&](void* stream) {
    cuda::gelu(stream, GeluForm{form}, x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), x.numel());
  });
  return y;
}

at::Tensor gelu_backward_kernel(const at::Tensor& grad_any, const at::Tensor& x_any, std::int64_t form) {
  const at::Tensor grad = grad_any.contiguous();
  const at::Tensor x = x_any.contiguous();
  TORCH_CHECK(grad.sizes() == x.sizes(), "gelu_backward: grad ", grad.sizes(), " and x ", x.sizes(), " differ");
  at::Tensor grad_x = at::empty_like(x);
  const auto cpu = [&] {
    for_element_type(x, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = grad.const_data_ptr<T>();
      const T* input = x.const_data_ptr<T>();
      T* to = grad_x.mutable_data_ptr<T>();
      at::parallel_for(0, x.numel(), kGrainElements, [&](std::int64_t begin, std::int64_t end) {
        backward(GeluForm{form}, from + begin, input + begin, to + begin, end - begin);
      });
    });
  };
  on_device(x, cpu, [&](void* stream) {
    cuda::gelu_backward(stream, GeluForm{form}, grad.const_data_ptr<float>(), x.const_data_ptr<float>(),
                        grad_x.mutable_data_ptr<float>(), x.numel());
  });
  return grad_x;
}

struct GeluFunction : Function<GeluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, std::int64_t form) {
    context->save_for_backward({x});
    context->saved_data["form"] = form;
    return TEMPO_CALL(gelu, x, form);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("gelu");
    const at::Tensor x = context->get_saved_variables()[0];
    return {TEMPO_CALL(gelu_backward, grads[0], x, context->saved_data["form"].toInt()), {}};
  }
};

TEMPO_REGISTER(gelu)
TEMPO_REGISTER(gelu_backward)

}  // namespace

at::Tensor gelu(const at::Tensor& x, GeluForm form) { return GeluFunction::apply(x, static_cast<std::int64_t>(form)); }

}  // namespace tempo::layers
