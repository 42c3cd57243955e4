#include "model/parameters.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "layers/math/philox.h"

namespace tempo::model {
namespace {

constexpr double kTwoPi = 6.28318530717958647692;
constexpr std::int64_t kGrainCalls = 4096;  // Philox calls a thread should get at least

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
std::uint64_t name_hash(const std::string& name) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

/// (0, 1]: never 0, so that its logarithm is finite.
double open_uniform(std::uint32_t bits) { return (bits + 1.0) * 0x1p-32; }

void set_initial_value(const Parameter& parameter, std::uint64_t seed) {
  if (parameter.value.is_meta()) return;
  const at::NoGradGuard no_grad;
  if (parameter.initial.deviation == 0) {
    parameter.value.fill_(parameter.initial.constant);
  } else if (parameter.value.is_cpu()) {
    fill_normal(parameter.value, seed, parameter.name, parameter.initial.deviation);
  } else {
    const at::Tensor host = at::empty(parameter.value.sizes(), parameter.value.options().device(at::kCPU));
    fill_normal(host, seed, parameter.name, parameter.initial.deviation);
    parameter.value.copy_(host);
  }
  if (parameter.num_real_rows < parameter.value.size(0)) {
    parameter.value.narrow(0, parameter.num_real_rows, parameter.value.size(0) - parameter.num_real_rows).zero_();
  }
}

}  // namespace

void fill_normal(const at::Tensor& tensor, std::uint64_t seed, const std::string& name, double deviation) {
  TORCH_CHECK(tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == at::kFloat,
              "fill_normal takes a contiguous float32 CPU tensor");
  const std::uint64_t key = seed ^ name_hash(name);
  const std::int64_t numel = tensor.numel();
  float* data = tensor.mutable_data_ptr<float>();
  at::parallel_for(0, (numel + 3) / 4, kGrainCalls, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t call = begin; call < end; ++call) {
      const auto words =
          layers::math::philox(key, static_cast<std::uint32_t>(call), static_cast<std::uint32_t>(call >> 32), 0, 0);
      for (std::int64_t pair = 0; pair < 2; ++pair) {
        const double radius = deviation * std::sqrt(-2 * std::log(open_uniform(words.word[2 * pair])));
        const double angle = kTwoPi * open_uniform(words.word[2 * pair + 1]);
        const std::int64_t at = 4 * call + 2 * pair;
        if (at < numel) data[at] = static_cast<float>(radius * std::cos(angle));
        if (at + 1 < numel) data[at + 1] = static_cast<float>(radius * std::sin(angle));
      }
    }
  });
}

at::Tensor Parameters::add(const std::string& name, at::IntArrayRef shape, InitialValue initial,
                           std::int64_t num_real_rows) {
  TORCH_INTERNAL_ASSERT(find(name) == nullptr, "parameter ", name, " exists already");
  at::Tensor value = at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(device_));
  value.set_requires_grad(true);
  all_.push_back({name, value, initial, num_real_rows < 0 ? shape[0] : num_real_rows});
  return value;
}

void Parameters::initialise(std::uint64_t seed) {
  for (const Parameter& parameter : all_) set_initial_value(parameter, seed);
}

void Parameters::initialise(std::uint64_t seed, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const Parameter* parameter = find(name);
    TORCH_INTERNAL_ASSERT(parameter != nullptr, "no parameter ", name);
    set_initial_value(*parameter, seed);
  }
}

const Parameter* Parameters::find(const std::string& name) const {
  for (const Parameter& parameter : all_) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

std::int64_t Parameters::num_elements() const {
  std::int64_t total = 0;
  for (const Parameter& parameter : all_) total += parameter.value.numel();
  return total;
}

}  // namespace tempo::model
