// What a block keeps for the backward pass with each set of layers, in bytes, on the CPU and on the meta device.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <ostream>

#include "model/model.h"
#include "tests/support/counted_meta_memory.h"
#include "tests/support/sample_batches.h"
#include "train/layer_presets.h"
#include "train/memory_tracker.h"

namespace tempo::train {
namespace {

using layers::LayerOptions;
using layers::MaskKeep;

constexpr std::int64_t kFloat = 4;  // bytes per element
constexpr std::int64_t kSequences = 3;
constexpr std::int64_t kSlots = 32;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kHidden = 48;

constexpr std::int64_t kUnit = kSequences * kSlots * kHidden;             // BSH
constexpr std::int64_t kSquares = kHeads * kSequences * kSlots * kSlots;  // ABS^2
constexpr std::int64_t kRowStatistic = kSequences * kSlots * kFloat;      // one number per row

model::ModelConfig config_of(std::int64_t num_layers) {
  model::ModelConfig config = testing::small_bert();
  config.hidden_size = kHidden;
  config.num_heads = kHeads;
  config.intermediate_size = 4 * kHidden;
  config.max_positions = kSlots;
  config.num_layers = num_layers;
  return config;
}

/// Bytes that are alive after the forward pass of the encoder and were not before.
std::int64_t bytes_after_forward(std::int64_t num_layers, const LayerOptions& options) {
  const auto model = model::make_model(config_of(num_layers), c10::kCPU, options);
  model->parameters().initialise(1);
  const data::Batch batch = testing::sample_batch({kSlots, kSlots, kSlots}, kSlots);
  const layers::StepContext context = model::make_context(batch, true, 1, 1);
  const std::int64_t before = cpu_memory_use().live_bytes;
  const at::Tensor hidden = model->encode(batch, context);
  return cpu_memory_use().live_bytes - before;
}

struct LayerSet {
  std::string name;
  LayerOptions options;
  std::int64_t kept_bytes;
};

LayerOptions changed(const char* preset, void (*change)(LayerOptions&)) {
  LayerOptions options = layer_preset(preset);
  change(options);
  return options;
}

std::vector<LayerSet> layer_sets() {
  const std::int64_t statistics = 4 * kRowStatistic;  // mean and rstd of two norms
  const std::int64_t log_sum_exp = kHeads * kSequences * kSlots * kFloat;
  return {
      {"baseline", layer_preset("baseline"), (16 * kFloat + 2) * kUnit + (2 * kFloat + 1) * kSquares + statistics},
      {"tempo with bytes", changed("tempo", [](LayerOptions& o) { o.masks = MaskKeep::kBytes; }),
       (10 * kFloat + 6) * kUnit + (kFloat + 1) * kSquares + statistics / 2},
      {"tempo", layer_preset("tempo"),
       10 * kFloat * kUnit + 3 * kUnit / 4 + kFloat * kSquares + kSquares / 8 + statistics / 2},
      {"lean", layer_preset("lean"), 10 * kFloat * kUnit + log_sum_exp + statistics},
      {"lean with ffn", changed("lean", [](LayerOptions& o) { o.recompute = layers::RecomputeOption::kFfn; }),
       6 * kFloat * kUnit + log_sum_exp + statistics},
      {"checkpoint", layer_preset("checkpoint"), kFloat * kUnit},
      {"lean with block", changed("lean", [](LayerOptions& o) { o.recompute = layers::RecomputeOption::kBlock; }),
       kFloat * kUnit},
  };
}

TEST(LayerSets, KeepExactlyWhatTheDocumentsSayPerBlock) {
  install_memory_tracker();
  for (const LayerSet& set : layer_sets()) {
    EXPECT_EQ(bytes_after_forward(3, set.options) - bytes_after_forward(2, set.options), set.kept_bytes) << set.name;
  }
}

/// What is alive after the forward pass of the encoder, and the peaks of both passes, on a device whose memory `use` tells.
struct Bytes {
  std::int64_t kept, forward_peak, backward_peak;

  bool operator==(const Bytes& other) const {
    return kept == other.kept && forward_peak == other.forward_peak && backward_peak == other.backward_peak;
  }
};

std::ostream& operator<<(std::ostream& out, const Bytes& bytes) {
  return out << bytes.kept << " kept, peaks " << bytes.forward_peak << " and " << bytes.backward_peak;
}

template <typename Use, typename ResetPeak>
Bytes bytes_of_both_passes(c10::Device device, const LayerOptions& options, Use&& use, ResetPeak&& reset) {
  const auto model = model::make_model(config_of(2), device, options);
  model->parameters().initialise(1);
  const data::Batch batch = testing::sample_batch({kSlots, kSlots, kSlots}, kSlots, device);
  const layers::StepContext context = model::make_context(batch, true, 1, 1);
  const std::int64_t before = use().live_bytes;
  reset();
  at::Tensor hidden = model->encode(batch, context);
  Bytes bytes{use().live_bytes - before, use().peak_bytes - before, 0};
  const at::Tensor cotangent = at::ones_like(hidden);
  reset();
  hidden.backward(cotangent);
  bytes.backward_peak = use().peak_bytes - before;
  return bytes;
}

TEST(LayerSets, NeedTheSameBytesOnTheMetaDevice) {
  install_memory_tracker();
  auto& meta = testing::CountedMetaMemory::install();
  for (const LayerSet& set : layer_sets()) {
    const Bytes on_cpu = bytes_of_both_passes(c10::kCPU, set.options, cpu_memory_use, reset_cpu_peak);
    const Bytes on_meta = bytes_of_both_passes(
        c10::kMeta, set.options,
        [&] {
          return MemoryUse{meta.live_bytes(), meta.peak_bytes(), 0, 0};
        },
        [&] { meta.reset_peak(); });
    EXPECT_EQ(on_meta, on_cpu) << set.name;
  }
}

TEST(LayerSets, AttentionWithoutSquaresNeedsNoSquareForAMoment) {
  install_memory_tracker();
  const std::int64_t slots = 4096;
  const at::Tensor x = at::ones({slots, 64}).set_requires_grad(true);
  const layers::Sequences sequences{
      at::tensor({std::int64_t{0}, slots}), at::tensor({slots}), at::zeros({1}, at::kLong), {0, slots}};
  const std::int64_t before = cpu_memory_use().live_bytes;
  reset_cpu_peak();
  const at::Tensor y = layers::attention(x, x, x, {1, false, layers::AttentionKeep::kLogSumExp, MaskKeep::kNothing},
                                         sequences, {0.1, 1, 1, 1});
  y.backward(at::ones_like(y));
  // Two chunks of 128 queries are 4 MiB, x and six like it 7 MiB; one square would be 64 MiB.
  EXPECT_LT(cpu_memory_use().peak_bytes - before, 16 << 20);
}

TEST(LayerSets, AreNamed) {
  EXPECT_EQ(layer_preset_names(), (std::vector<std::string>{"baseline", "tempo", "lean", "checkpoint"}));
  EXPECT_EQ(text_of(layer_preset("lean")),
            "gelu recompute, layer_norm recompute, dropout regenerate, attention flash, recompute none");
  EXPECT_EQ(text_of(layer_preset("tempo")),
            "gelu tempo, layer_norm tempo, dropout tempo, attention tempo, recompute none, masks packed");
}

}  // namespace
}  // namespace tempo::train
