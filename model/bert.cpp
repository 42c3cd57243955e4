#include "model/bert.h"

#include "model/transformer_block.h"

namespace tempo::model {
namespace {

// Dropout sites (docs/operators.md): 0 the embeddings, then three per block in the order of the forward pass.
constexpr std::int64_t kEmbeddingSite = 0;
constexpr std::int64_t kSitesPerBlock = 3;

class Bert final : public Model {
 public:
  Bert(const ModelConfig& config, c10::Device device, const layers::LayerOptions& options) : Model(config, device) {
    embeddings_ = add_embeddings();
    layers::LayerNorm opening = add_norm("bert.embeddings.LayerNorm");
    for (std::int64_t i = 0; i < config.num_layers; ++i) blocks_.push_back(add_block(i, opening));
    final_norm_ = opening;
    pooler_ = add_linear("bert.pooler.dense", config.hidden_size, config.hidden_size);
    add_heads();
    set_layers(options);
  }

  void set_layers(const layers::LayerOptions& options) override {
    for (TransformerBlock& block : blocks_) block.options = options;
  }

  at::Tensor encode(const data::Batch& batch, const layers::StepContext& context) const override {
    at::Tensor z_TH = layers::embedding_sum(embeddings_, batch.token_ids, batch.position_ids, batch.token_types);
    for (const TransformerBlock& block : blocks_) z_TH = block.forward(z_TH, context);
    return final_norm_.forward(z_TH);
  }

  Logits heads(const at::Tensor& hidden_TH, const data::Batch& batch) const override {
    const at::Tensor masked_MH = transform_.forward(layers::gather_rows(hidden_TH, batch.label_positions));
    const at::Tensor normed_MH = transform_norm_.forward(layers::gelu(masked_MH, gelu_form()));
    const at::Tensor token_MV = layers::linear(normed_MH, embeddings_.word, decoder_bias_);
    const at::Tensor first_BH = layers::gather_rows(hidden_TH, batch.sequence_starts.narrow(0, 0, batch.num_sequences));
    return {token_MV, sentence_.forward(at::tanh(pooler_.forward(first_BH)))};
  }

 private:
  layers::GeluForm gelu_form() const {
    return config_.activation() == Activation::kGelu ? layers::GeluForm::kExact : layers::GeluForm::kTanh;
  }

  layers::Linear add_linear(const std::string& name, std::int64_t out, std::int64_t in) {
    at::Tensor weight = parameters_.add(name + ".weight", {out, in}, kNormal002);
    return {weight, parameters_.add(name + ".bias", {out}, kZeros)};
  }

  layers::LayerNorm add_norm(const std::string& name) {
    at::Tensor weight = parameters_.add(name + ".weight", {config_.hidden_size}, kOnes);
    return {weight, parameters_.add(name + ".bias", {config_.hidden_size}, kZeros), config_.layer_norm_eps};
  }

  layers::EmbeddingTables add_embeddings() {
    const std::string prefix = "bert.embeddings.";
    const std::int64_t hidden = config_.hidden_size;
    layers::EmbeddingTables tables;
    tables.word = parameters_.add(prefix + "word_embeddings.weight", {config_.padded_vocab_size(), hidden}, kNormal002,
                                  config_.vocab_size);
    tables.position =
        parameters_.add(prefix + "position_embeddings.weight", {config_.max_positions, hidden}, kNormal002);
    tables.token_type =
        parameters_.add(prefix + "token_type_embeddings.weight", {config_.type_vocab_size, hidden}, kNormal002);
    return tables;
  }

  /// `opening` is the norm that block `index` starts with; on return, the one that follows it.
  TransformerBlock add_block(std::int64_t index, layers::LayerNorm& opening) {
    const std::string prefix = "bert.encoder.layer." + std::to_string(index) + ".";
    const std::int64_t hidden = config_.hidden_size;
    const layers::Linear query = add_linear(prefix + "attention.self.query", hidden, hidden);
    const layers::Linear key = add_linear(prefix + "attention.self.key", hidden, hidden);
    const layers::Linear value = add_linear(prefix + "attention.self.value", hidden, hidden);
    const std::int64_t first_site = kEmbeddingSite + 1 + index * kSitesPerBlock;
    TransformerBlock block;
    block.norm1 = opening;
    block.attention = {{query.weight, query.bias, key.weight, key.bias, value.weight, value.bias},
                       config_.num_heads,
                       config_.attention_dropout,
                       first_site};
    block.projection = add_linear(prefix + "attention.output.dense", hidden, hidden);
    block.norm2 = add_norm(prefix + "attention.output.LayerNorm");
    block.mlp.fc1 = add_linear(prefix + "intermediate.dense", config_.intermediate_size, hidden);
    block.mlp.fc2 = add_linear(prefix + "output.dense", hidden, config_.intermediate_size);
    block.mlp.gelu_form = gelu_form();
    block.hidden_dropout = config_.hidden_dropout;
    block.drops_input = index == 0;
    block.input_site = kEmbeddingSite;
    block.projection_site = first_site + 1;
    block.mlp_site = first_site + 2;
    opening = add_norm(prefix + "output.LayerNorm");
    return block;
  }

  void add_heads() {
    decoder_bias_ = parameters_.add("cls.predictions.bias", {config_.padded_vocab_size()}, kZeros, config_.vocab_size);
    transform_ = add_linear("cls.predictions.transform.dense", config_.hidden_size, config_.hidden_size);
    transform_norm_ = add_norm("cls.predictions.transform.LayerNorm");
    sentence_ = add_linear("cls.seq_relationship", 2, config_.hidden_size);
  }

  layers::EmbeddingTables embeddings_;
  std::vector<TransformerBlock> blocks_;
  layers::LayerNorm final_norm_;
  layers::Linear pooler_;
  layers::Linear transform_;
  layers::LayerNorm transform_norm_;
  at::Tensor decoder_bias_;
  layers::Linear sentence_;
};

}  // namespace

std::unique_ptr<Model> make_bert(const ModelConfig& config, c10::Device device, const layers::LayerOptions& options) {
  return std::make_unique<Bert>(config, device, options);
}

}  // namespace tempo::model
