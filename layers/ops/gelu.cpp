#include "layers/math/gelu.h"

#include "layers/math/gelu_inverse.h"
#include "layers/ops/bit_mask.h"
#include "layers/ops/cpu_loops.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/launches.h"
#include "layers/ops/ops.h"

namespace tempo::layers {
namespace {

using std::int64_t;
using std::uint8_t;

template <typename Form, typename T>
TEMPO_INLINE void forward_loop(const T* x, T* y, int64_t size) {
  for (int64_t i = 0; i < size; ++i) y[i] = Form::value(math::Compute<T>{x[i]});
}

template <typename Form, typename T>
TEMPO_INLINE void backward_loop(const T* grad, const T* x, T* grad_x, int64_t size) {
  for (int64_t i = 0; i < size; ++i) grad_x[i] = grad[i] * Form::value_and_slope(math::Compute<T>{x[i]}).slope;
}

/// grad becomes the gradient of x, and x becomes the output.
template <typename Form, typename T>
TEMPO_INLINE void in_place_loop(T* grad, T* x, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    const math::ValueAndSlope<math::Compute<T>> at = Form::value_and_slope(math::Compute<T>{x[i]});
    grad[i] = grad[i] * at.slope;
    x[i] = at.value;
  }
}

template <typename Form, typename T>
TEMPO_INLINE void strip_with_flags(const T* x, T* y, uint8_t* flags, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    flags[i] = math::GeluInverse<Form>::is_right(math::Compute<T>{x[i]}) ? 1 : 0;
    y[i] = math::GeluInverse<Form>::value(math::Compute<T>{x[i]});
  }
}

template <typename Form, typename T>
TEMPO_INLINE void forward_with_mask_loop(MaskKeep masks, const T* x, T* y, uint8_t* right, int64_t size) {
  if (masks == MaskKeep::kBytes) return strip_with_flags<Form>(x, y, right, size);
  uint8_t flags[kMaskStrip];
  for (int64_t begin = 0; begin < size; begin += kMaskStrip) {
    const int64_t count = std::min(kMaskStrip, size - begin);
    strip_with_flags<Form>(x + begin, y + begin, flags, count);
    pack_mask(flags, count, right + begin / 8);
  }
}

template <typename Form, typename T>
TEMPO_INLINE void strip_from_output(const T* grad, const T* y, const uint8_t* flags, T* grad_x, int64_t size) {
  for (int64_t i = 0; i < size; ++i)
    grad_x[i] = grad[i] * math::GeluInverse<Form>::slope(math::Compute<T>{y[i]}, flags[i] != 0);
}

template <typename Form, typename T>
TEMPO_INLINE void backward_from_output_loop(MaskKeep masks, const T* grad, const T* y, const uint8_t* right, T* grad_x,
                                            int64_t size) {
  if (masks == MaskKeep::kBytes) return strip_from_output<Form>(grad, y, right, grad_x, size);
  uint8_t flags[kMaskStrip];
  for (int64_t begin = 0; begin < size; begin += kMaskStrip) {
    const int64_t count = std::min(kMaskStrip, size - begin);
    unpack_mask(right + begin / 8, count, flags);
    strip_from_output<Form>(grad + begin, y + begin, flags, grad_x + begin, count);
  }
}

// One function per loop and type: all but double, which calls libm, are compiled for every level of x86-64.
#define TEMPO_GELU_LOOPS(T, VECTORISED)                                                                                \
  VECTORISED void forward(GeluForm form, const T* x, T* y, int64_t size) {                                             \
    form == GeluForm::kExact ? forward_loop<math::GeluExact>(x, y, size) : forward_loop<math::GeluTanh>(x, y, size);   \
  }                                                                                                                    \
  VECTORISED void backward(GeluForm form, const T* grad, const T* x, T* grad_x, int64_t size) {                        \
    form == GeluForm::kExact ? backward_loop<math::GeluExact>(grad, x, grad_x, size)                                   \
                             : backward_loop<math::GeluTanh>(grad, x, grad_x, size);                                   \
  }                                                                                                                    \
  VECTORISED void in_place(GeluForm form, T* grad, T* x, int64_t size) {                                               \
    form == GeluForm::kExact ? in_place_loop<math::GeluExact>(grad, x, size)                                           \
                             : in_place_loop<math::GeluTanh>(grad, x, size);                                           \
  }                                                                                                                    \
  VECTORISED void forward_with_mask(GeluForm form, MaskKeep masks, const T* x, T* y, uint8_t* right, int64_t size) {   \
    form == GeluForm::kExact ? forward_with_mask_loop<math::GeluExact>(masks, x, y, right, size)                       \
                             : forward_with_mask_loop<math::GeluTanh>(masks, x, y, right, size);                       \
  }                                                                                                                    \
  VECTORISED void backward_from_output(GeluForm form, MaskKeep masks, const T* grad, const T* y, const uint8_t* right, \
                                       T* grad_x, int64_t size) {                                                      \
    form == GeluForm::kExact ? backward_from_output_loop<math::GeluExact>(masks, grad, y, right, grad_x, size)         \
                             : backward_from_output_loop<math::GeluTanh>(masks, grad, y, right, grad_x, size);         \
  }

TEMPO_GELU_LOOPS(float, TEMPO_VECTORISED)
TEMPO_GELU_LOOPS(at::BFloat16, TEMPO_VECTORISED)
TEMPO_GELU_LOOPS(at::Half, TEMPO_VECTORISED)
TEMPO_GELU_LOOPS(double, )

/// Runs loop(begin, count, first byte of the mask) on all threads, in pieces that begin at whole bytes of a packed mask.
template <typename Loop>
void for_pieces(int64_t size, MaskKeep masks, const Loop& loop) {
  at::parallel_for(0, mask_bytes(size), kGrainElements / 8, [&](int64_t first_byte, int64_t end_byte) {
    const int64_t begin = first_byte * 8;
    loop(begin, std::min(end_byte * 8, size) - begin, masks == MaskKeep::kBits ? first_byte : begin);
  });
}

void check_like(const char* name, const at::Tensor& grad, const at::Tensor& other) {
  TORCH_CHECK(grad.sizes() == other.sizes(), name, ": grad ", grad.sizes(), " and ", other.sizes(), " differ");
}

at::Tensor gelu_kernel(const at::Tensor& x_any, int64_t form) {
  const at::Tensor x = x_any.contiguous();
  at::Tensor y = at::empty_like(x);
  const auto cpu = [&] {
    for_element_type(x, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = x.const_data_ptr<T>();
      T* to = y.mutable_data_ptr<T>();
      at::parallel_for(0, x.numel(), kGrainElements, [&](int64_t begin, int64_t end) {
        forward(GeluForm{form}, from + begin, to + begin, end - begin);
      });
    });
  };
  on_device(x, cpu, [&](void* stream) {
    cuda::gelu(stream, GeluForm{form}, x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), x.numel());
  });
  return y;
}

at::Tensor gelu_backward_kernel(const at::Tensor& grad_any, const at::Tensor& x_any, int64_t form) {
  const at::Tensor grad = grad_any.contiguous();
  const at::Tensor x = x_any.contiguous();
  check_like("gelu_backward", grad, x);
  at::Tensor grad_x = at::empty_like(x);
  const auto cpu = [&] {
    for_element_type(x, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = grad.const_data_ptr<T>();
      const T* input = x.const_data_ptr<T>();
      T* to = grad_x.mutable_data_ptr<T>();
      at::parallel_for(0, x.numel(), kGrainElements, [&](int64_t begin, int64_t end) {
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

/// grad: gradient of the output -> that of x; x -> the output, with the bits of gelu. Both in place.
void gelu_backward_in_place__kernel(const at::Tensor& grad, const at::Tensor& x, int64_t form) {
  check_contiguous("gelu_backward_in_place_", {grad, x});
  check_like("gelu_backward_in_place_", grad, x);
  const auto cpu = [&] {
    for_element_type(x, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      T* gradient = grad.mutable_data_ptr<T>();
      T* input = x.mutable_data_ptr<T>();
      at::parallel_for(0, x.numel(), kGrainElements, [&](int64_t begin, int64_t end) {
        in_place(GeluForm{form}, gradient + begin, input + begin, end - begin);
      });
    });
  };
  on_device(x, cpu, [&](void* stream) {
    cuda::gelu_backward_in_place(stream, GeluForm{form}, grad.mutable_data_ptr<float>(), x.mutable_data_ptr<float>(),
                                 x.numel());
  });
}

/// The output and, packed or as bytes, where x is not left of the minimum.
std::tuple<at::Tensor, at::Tensor> gelu_with_mask_kernel(const at::Tensor& x_any, int64_t form, int64_t masks) {
  const at::Tensor x = x_any.contiguous();
  at::Tensor y = at::empty_like(x);
  at::Tensor right = MaskKeep{masks} == MaskKeep::kBits
                         ? at::empty({mask_bytes(x.numel())}, x.options().dtype(at::kByte))
                         : at::empty(x.sizes(), x.options().dtype(at::kByte));
  uint8_t* const bits = x.is_meta() ? nullptr : right.mutable_data_ptr<uint8_t>();
  const auto cpu = [&] {
    for_element_type(x, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = x.const_data_ptr<T>();
      T* to = y.mutable_data_ptr<T>();
      for_pieces(x.numel(), MaskKeep{masks}, [&](int64_t begin, int64_t count, int64_t first_byte) {
        forward_with_mask(GeluForm{form}, MaskKeep{masks}, from + begin, to + begin, bits + first_byte, count);
      });
    });
  };
  on_device(x, cpu, [&](void* stream) {
    cuda::gelu_with_mask(stream, GeluForm{form}, MaskKeep{masks} == MaskKeep::kBits, x.const_data_ptr<float>(),
                         y.mutable_data_ptr<float>(), bits, x.numel());
  });
  return {y, right};
}

at::Tensor gelu_backward_from_output_kernel(const at::Tensor& grad_any, const at::Tensor& y, const at::Tensor& right,
                                            int64_t form, int64_t masks) {
  const at::Tensor grad = grad_any.contiguous();
  check_contiguous("gelu_backward_from_output", {y, right});
  check_like("gelu_backward_from_output", grad, y);
  const int64_t bytes = MaskKeep{masks} == MaskKeep::kBits ? mask_bytes(y.numel()) : y.numel();
  TORCH_CHECK(right.numel() == bytes && right.scalar_type() == at::kByte,
              "gelu_backward_from_output: the mask is not of ", bytes, " bytes");
  at::Tensor grad_x = at::empty_like(y);
  const uint8_t* const bits = y.is_meta() ? nullptr : right.const_data_ptr<uint8_t>();
  const auto cpu = [&] {
    for_element_type(y, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = grad.const_data_ptr<T>();
      const T* output = y.const_data_ptr<T>();
      T* to = grad_x.mutable_data_ptr<T>();
      for_pieces(y.numel(), MaskKeep{masks}, [&](int64_t begin, int64_t count, int64_t first_byte) {
        backward_from_output(GeluForm{form}, MaskKeep{masks}, from + begin, output + begin, bits + first_byte,
                             to + begin, count);
      });
    });
  };
  on_device(y, cpu, [&](void* stream) {
    cuda::gelu_backward_from_output(stream, GeluForm{form}, MaskKeep{masks} == MaskKeep::kBits,
                                    grad.const_data_ptr<float>(), y.const_data_ptr<float>(), bits,
                                    grad_x.mutable_data_ptr<float>(), y.numel());
  });
  return grad_x;
}

struct GeluFunction : Function<GeluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t form) {
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

/// What is saved as y is the tensor that is returned: with a `linear` after it, which keeps its input, y exists once.
struct GeluFromOutputFunction : Function<GeluFromOutputFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t form, int64_t masks) {
    const auto [y, right] = TEMPO_CALL(gelu_with_mask, x, form, masks);
    context->save_for_backward({y, right});
    context->saved_data["form"] = form;
    context->saved_data["masks"] = masks;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("gelu");
    const variable_list saved = context->get_saved_variables();
    return {TEMPO_CALL(gelu_backward_from_output, grads[0], saved[0], saved[1], context->saved_data["form"].toInt(),
                       context->saved_data["masks"].toInt()),
            {},
            {}};
  }
};

TEMPO_REGISTER(gelu)
TEMPO_REGISTER(gelu_backward)
TEMPO_REGISTER(gelu_backward_in_place_)
TEMPO_REGISTER(gelu_with_mask)
TEMPO_REGISTER(gelu_backward_from_output)

}  // namespace

at::Tensor gelu(const at::Tensor& x, GeluForm form, GeluKeep keep, MaskKeep masks) {
  const auto form_number = static_cast<int64_t>(form);
  if (keep == GeluKeep::kInput) return GeluFunction::apply(x, form_number);
  return GeluFromOutputFunction::apply(x, form_number, static_cast<int64_t>(masks));
}

}  // namespace tempo::layers
