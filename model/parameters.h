// The trainable tensors of a model, by name, and their first values.
//
// Names are Hugging Face's current ones. A first value is a pure function of (seed, name, element): no order of creation, no
// device and no number of threads changes it.
// Not for: reading files (hf_weights.h). Thread rule: built by one thread, then read by any.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tempo::model {

/// How a parameter starts: normal with mean 0 and `deviation`, or a constant.
struct InitialValue {
  double deviation = 0;  ///< 0: the constant
  double constant = 0;
};

inline constexpr InitialValue kZeros{0, 0};
inline constexpr InitialValue kOnes{0, 1};
inline constexpr InitialValue kNormal002{0.02, 0};  ///< BERT's and GPT-2's initializer_range

struct Parameter {
  std::string name;
  at::Tensor value;  ///< fp32 leaf that requires a gradient
  InitialValue initial;
  std::int64_t num_real_rows;  ///< rows of dimension 0 that are not padding of the vocabulary; the others start at 0
};

class Parameters {
 public:
  explicit Parameters(c10::Device device) : device_(device) {}

  /// Adds an uninitialised parameter and returns it. `num_real_rows` < shape[0] marks vocabulary padding.
  at::Tensor add(const std::string& name, at::IntArrayRef shape, InitialValue initial, std::int64_t num_real_rows = -1);

  /// Sets every parameter, or only those called `names`, to its first value.
  void initialise(std::uint64_t seed);
  void initialise(std::uint64_t seed, const std::vector<std::string>& names);

  const std::vector<Parameter>& all() const { return all_; }
  const Parameter* find(const std::string& name) const;
  std::int64_t num_elements() const;

 private:
  c10::Device device_;
  std::vector<Parameter> all_;
};

/// Fills a CPU float tensor with normal numbers keyed by (seed, name): element i is number i mod 4 of the i / 4-th Philox call
/// under key seed xor FNV-1a(name), pairs turned normal by Box and Muller (1958).
void fill_normal(const at::Tensor& tensor, std::uint64_t seed, const std::string& name, double deviation);

}  // namespace tempo::model
