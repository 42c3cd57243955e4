// A model that can be pre-trained: parameters, a forward pass over a Batch, and losses as sums.
//
// Losses are sums over labels, not means: whoever knows the whole global batch divides (train/train_step.h), so that no split
// into micro-batches or ranks changes the result.
// Shapes: T token slots, B sequences, M label slots, H hidden, V padded vocabulary.
// Not for: optimisation or files. Thread rule: one forward at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "data/batch.h"
#include "layers/modules.h"
#include "model/config.h"
#include "model/parameters.h"

namespace tempo::model {

/// The scores of the pre-training heads.
struct Logits {
  at::Tensor token_MV;     ///< masked-token logits; columns from vocab_size on are padding
  at::Tensor sentence_B2;  ///< next-sentence logits; undefined for models without that head
};

/// Sums over a micro-batch, scalars on the device.
struct LossSums {
  at::Tensor token;        ///< sum of -log p over labels
  at::Tensor sentence;     ///< sum over sequences; undefined without that head
  at::Tensor num_correct;  ///< int64, labels predicted right
};

class Model {
 public:
  virtual ~Model() = default;

  /// The hidden states that the heads read: [T, H].
  virtual at::Tensor encode(const data::Batch& batch, const layers::StepContext& context) const = 0;
  virtual Logits heads(const at::Tensor& hidden_TH, const data::Batch& batch) const = 0;

  /// encode, heads and cross-entropy of a batch in one pass.
  LossSums forward(const data::Batch& batch, const layers::StepContext& context) const;

  /// What the blocks keep from now on.
  virtual void set_layers(const layers::LayerOptions& options) = 0;

  const ModelConfig& config() const { return config_; }
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }

 protected:
  Model(const ModelConfig& config, c10::Device device) : config_(config), parameters_(device) {}

  ModelConfig config_;
  Parameters parameters_;
};

/// The context of one forward pass over `batch`.
layers::StepContext make_context(const data::Batch& batch, bool training, std::uint64_t seed, std::int64_t step);

/// Builds the model of `config` on `device` (meta too) with uninitialised parameters; its blocks keep what `options` say.
std::unique_ptr<Model> make_model(const ModelConfig& config, c10::Device device,
                                  const layers::LayerOptions& options = {});

}  // namespace tempo::model
