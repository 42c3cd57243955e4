#include "model/bert.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/support/sample_batches.h"

namespace tempo::model {
namespace {

using testing::sample_batch;
using testing::small_bert;

TEST(Bert, HasAsManyParametersAsItsConfigurationCounts) {
  for (const std::string& size : size_names(Family::kBert)) {
    const ModelConfig config = named_size(Family::kBert, size);
    EXPECT_EQ(make_model(config, c10::kMeta)->parameters().num_elements(), count_parameters(config)) << size;
  }
}

TEST(Bert, StartsFromTheSameValuesForAnyNumberOfThreads) {
  const auto model = make_model(small_bert(), c10::kCPU);
  const auto other = make_model(small_bert(), c10::kCPU);
  model->parameters().initialise(7);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  other->parameters().initialise(7);
  at::set_num_threads(threads);
  for (const Parameter& parameter : model->parameters().all()) {
    EXPECT_TRUE(at::equal(parameter.value, other->parameters().find(parameter.name)->value)) << parameter.name;
  }
  other->parameters().initialise(8);
  const char* name = "bert.pooler.dense.weight";
  EXPECT_FALSE(at::equal(model->parameters().find(name)->value, other->parameters().find(name)->value));
}

TEST(Bert, StartsFromNormalWeightsUnitNormsAndZeroBiases) {
  ModelConfig config = small_bert();
  config.vocab_size = 5001;
  config.vocab_multiple = 8;
  const auto model = make_model(config, c10::kCPU);
  model->parameters().initialise(1);
  const at::Tensor words = model->parameters().find("bert.embeddings.word_embeddings.weight")->value;
  ASSERT_EQ(words.size(0), 5008);
  const at::Tensor real = words.narrow(0, 0, 5001).to(at::kDouble);
  EXPECT_NEAR(real.mean().item<double>(), 0, 3e-4);
  EXPECT_NEAR(real.std().item<double>(), 0.02, 3e-4);
  EXPECT_TRUE(at::equal(words.narrow(0, 5001, 7), at::zeros({7, 16})));
  EXPECT_TRUE(at::equal(model->parameters().find("bert.embeddings.LayerNorm.weight")->value, at::ones({16})));
  EXPECT_TRUE(at::equal(model->parameters().find("cls.predictions.bias")->value, at::zeros({5008})));
}

/// Loss and gradients of one batch, dropout on.
std::pair<double, std::vector<at::Tensor>> evaluate(Model& model, const data::Batch& batch) {
  for (const Parameter& parameter : model.parameters().all()) at::Tensor(parameter.value).mutable_grad().reset();
  const LossSums sums = model.forward(batch, make_context(batch, true, 3, 5));
  const at::Tensor loss = sums.token + sums.sentence;
  loss.backward();
  std::vector<at::Tensor> grads;
  for (const Parameter& parameter : model.parameters().all()) grads.push_back(parameter.value.grad().clone());
  return {loss.item<double>(), grads};
}

TEST(Bert, GivesPaddedAndUnpaddedBatchesTheSameLossAndGradients) {
  const auto model = make_model(small_bert(), c10::kCPU);
  model->parameters().initialise(1);
  const auto [padded_loss, padded] = evaluate(*model, sample_batch({8, 12, 3}, 12));
  const auto [ragged_loss, ragged] = evaluate(*model, sample_batch({8, 12, 3}, 0));
  EXPECT_NEAR(padded_loss, ragged_loss, 1e-5);
  for (std::size_t i = 0; i < padded.size(); ++i) {
    const double largest = padded[i].abs().max().item<double>();
    EXPECT_LE((padded[i] - ragged[i]).abs().max().item<double>(), 1e-5 * std::max(largest, 1e-3))
        << model->parameters().all()[i].name;
  }
}

TEST(Bert, DrawsTheSameMasksForAnExampleInAnyBatch) {
  ModelConfig config = small_bert();
  const auto model = make_model(config, c10::kCPU);
  model->parameters().initialise(1);
  const data::Batch three = sample_batch({8, 12, 3}, 12);
  const at::Tensor together = model->encode(three, make_context(three, true, 3, 5)).detach();
  const data::Batch one = sample_batch({8}, 12);
  const at::Tensor alone = model->encode(one, make_context(one, true, 3, 5)).detach();
  EXPECT_LE((together.narrow(0, 0, 8) - alone.narrow(0, 0, 8)).abs().max().item<double>(), 1e-5);
  const at::Tensor next_step = model->encode(one, make_context(one, true, 3, 6)).detach();
  EXPECT_GT((next_step - alone).abs().max().item<double>(), 0.01);
}

TEST(Bert, DropsNothingOutsideTraining) {
  const auto model = make_model(small_bert(), c10::kCPU);
  model->parameters().initialise(1);
  const data::Batch batch = sample_batch({8, 12}, 12);
  const at::Tensor once = model->encode(batch, make_context(batch, false, 1, 1));
  EXPECT_TRUE(at::equal(once, model->encode(batch, make_context(batch, false, 2, 9))));
}

}  // namespace
}  // namespace tempo::model
