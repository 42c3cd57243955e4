// How an operator is called and registered.
//
// Every operator is one C++ function that checks, allocates and then lets `on_device` run a loop, launch a kernel or, for meta
// tensors, do nothing. It is registered under each device's key: memory is the same everywhere by construction.
// Not for: users of operators (ops.h). Thread rule: as ATen's dispatcher.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/custom_function.h>

namespace tempo::layers {

/// The operator `tempo::NAME` as a typed handle. Signature is its C++ signature; a mismatch with the schema throws.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// Calls `tempo::NAME`, looked up once, with the signature of the function that implements it.
#define TEMPO_CALL(name, ...)                                                           \
  ([&]() -> decltype(auto) {                                                            \
    static const auto handle = find_operator<decltype(name##_kernel)>("tempo::" #name); \
    return handle.call(__VA_ARGS__);                                                    \
  }())

#if defined(TEMPO_HAS_CUDA)
inline constexpr bool kHasCudaKernels = true;
#define TEMPO_REGISTER_CUDA(name) \
  TORCH_LIBRARY_IMPL(tempo, CUDA, library) { library.impl(#name, name##_kernel); }
#else
inline constexpr bool kHasCudaKernels = false;
#define TEMPO_REGISTER_CUDA(name)
#endif

#if defined(TEMPO_EMULATE_CUDA)
/// In tests only: while it is set, CPU tensors take the way of CUDA tensors, and tests/support/cuda_emulation.h runs the kernels.
inline bool emulating_cuda = false;
#else
inline constexpr bool emulating_cuda = false;
#endif

/// Registers NAME_kernel as the implementation of tempo::NAME on every device there is.
#define TEMPO_REGISTER(name)                                                       \
  TORCH_LIBRARY_IMPL(tempo, CPU, library) { library.impl(#name, name##_kernel); }  \
  TORCH_LIBRARY_IMPL(tempo, Meta, library) { library.impl(#name, name##_kernel); } \
  TEMPO_REGISTER_CUDA(name)

/// Runs `cpu` for a CPU tensor, `cuda` with the current stream (a cudaStream_t) for a CUDA tensor, nothing for a meta tensor.
/// Without CUDA kernels nothing calls `cuda`, so no code is made for it, and what it would call need not exist.
template <typename Cpu, typename Cuda>
void on_device(const at::Tensor& tensor, Cpu&& cpu, [[maybe_unused]] Cuda&& cuda) {
  if (tensor.is_meta() || tensor.numel() == 0) return;
  if constexpr (kHasCudaKernels) {
    if (tensor.is_cuda()) {
      const c10::OptionalDeviceGuard guard(tensor.device());
      cuda(c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(tensor.device()).native_handle());
      return;
    }
    if (emulating_cuda) return cuda(nullptr);
  }
  TORCH_CHECK(tensor.is_cpu(), "tempo has no kernel for a tensor on ", tensor.device());
  cpu();
}

/// Calls `run` with a null pointer of the tensor's element type: float, bf16, fp16 or double.
template <typename Run>
void for_element_type(const at::Tensor& tensor, Run&& run) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return run(static_cast<float*>(nullptr));
    case at::kBFloat16:
      return run(static_cast<at::BFloat16*>(nullptr));
    case at::kHalf:
      return run(static_cast<at::Half*>(nullptr));
    case at::kDouble:
      return run(static_cast<double*>(nullptr));
    default:
      TORCH_CHECK(false, "tempo operators take float32, bfloat16, float16 or float64, got ", tensor.scalar_type());
  }
}

/// Options for what is computed from `tensor` and is not rounded to its type: sums and statistics (math::Compute).
inline at::TensorOptions compute_options(const at::Tensor& tensor) {
  return tensor.options().dtype(tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

/// Tables, parameters, masks and indices are read as they lie in memory; activations are made contiguous by the operators.
inline void check_contiguous(const char* name, std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors)
    TORCH_CHECK(tensor.is_contiguous(), name, ": a tensor of ", tensor.sizes(), " is not contiguous");
}

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// Every backward starts with this: our backward kernels have no derivative of their own.
inline void refuse_double_backward(const char* name) {
  TORCH_CHECK(!at::GradMode::is_enabled(), "tempo::", name,
              " has no second derivative: call backward without create_graph");
}

}  // namespace tempo::layers
