#include "train/evaluation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/sample_batches.h"
#include "tests/support/shard_writer.h"
#include "tests/support/temporary_directory.h"

namespace tempo::train {
namespace {

/// Seven rows (F1's four and three of them again), and a model with dropout that fits them.
struct Fixture {
  Fixture() {
    testing::ShardRows rows = testing::fixture_f1_rows();
    rows.add({2, 5, 6, 4, 3, 7, 8, 3}, 5, 8, {3}, {9}, 0);
    rows.add({2, 15, 4, 3, 4, 8, 3}, 4, 7, {2, 4}, {6, 7}, 1);
    rows.add({2, 6, 4, 8, 4, 3, 5, 4, 3}, 6, 9, {2, 4, 7}, {7, 10, 12}, 0);
    testing::write_shard(folder / "held.hdf5", rows);
    data::DatasetOptions options;
    options.shards = {folder / "held.hdf5"};
    options.shuffle = false;
    dataset = std::make_unique<data::Dataset>(std::move(options));
    model = model::make_model(testing::small_bert(), c10::kCPU);
    model->parameters().initialise(1);
  }

  testing::TemporaryDirectory folder;
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<model::Model> model;
};

TEST(Evaluate, DividesSumsOverTheWholeSetByItsCounts) {
  Fixture fixture;
  const data::GlobalBatch all{0, 0, 7};
  const data::Batch batch = fixture.dataset->read(all, 0, 7).to(c10::kCPU);
  const at::NoGradGuard no_grad;
  const model::LossSums sums = fixture.model->forward(batch, model::make_context(batch, false, 9, 9));
  const ValidationRecord whole = *evaluate(*fixture.model, *fixture.dataset, 7);
  EXPECT_EQ(fixture.dataset->count_labels(all), 16);
  EXPECT_DOUBLE_EQ(whole.token_loss, sums.token.item<double>() / 16);
  EXPECT_DOUBLE_EQ(whole.sentence_loss, sums.sentence.item<double>() / 7);
  EXPECT_DOUBLE_EQ(whole.loss, whole.token_loss + whole.sentence_loss);
  EXPECT_DOUBLE_EQ(whole.token_accuracy, static_cast<double>(sums.num_correct.item<std::int64_t>()) / 16);
  EXPECT_EQ(whole.sequences, 7);
  EXPECT_GT(whole.seconds, 0);
}

TEST(Evaluate, DoesNotDependOnTheMicroBatch) {
  Fixture fixture;
  const ValidationRecord whole = *evaluate(*fixture.model, *fixture.dataset, 100);
  for (const std::int64_t micro_batch : {1, 2, 3, 4}) {
    const ValidationRecord cut = *evaluate(*fixture.model, *fixture.dataset, micro_batch);
    EXPECT_NEAR(cut.token_loss, whole.token_loss, 1e-6) << micro_batch;
    EXPECT_NEAR(cut.sentence_loss, whole.sentence_loss, 1e-6) << micro_batch;
    EXPECT_EQ(cut.token_accuracy, whole.token_accuracy) << micro_batch;
  }
}

TEST(Evaluate, LeavesNoGradientsAndSaysHowFarItIs) {
  Fixture fixture;
  std::vector<std::int64_t> heard;
  evaluate(*fixture.model, *fixture.dataset, 3, [&](std::int64_t done) {
    heard.push_back(done);
    return true;
  });
  EXPECT_EQ(heard, (std::vector<std::int64_t>{3, 6, 7}));
  for (const model::Parameter& parameter : fixture.model->parameters().all())
    EXPECT_FALSE(parameter.value.grad().defined());
}

TEST(Evaluate, EndsWithoutARecordWhenItIsToldTo) {
  Fixture fixture;
  std::int64_t last = 0;
  const auto record = evaluate(*fixture.model, *fixture.dataset, 2, [&](std::int64_t done) {
    last = done;
    return done < 4;
  });
  EXPECT_FALSE(record);
  EXPECT_EQ(last, 4);
}

TEST(EvaluationPlan, IsDueAtMultiplesAndAtTheLastStep) {
  const EvaluationPlan plan{4, 10};
  std::vector<std::int64_t> due;
  for (std::int64_t step = 1; step <= 10; ++step)
    if (plan.is_due(step)) due.push_back(step);
  EXPECT_EQ(due, (std::vector<std::int64_t>{4, 8, 10}));
  EXPECT_EQ(plan.count(), 3);
  EXPECT_EQ((EvaluationPlan{5, 10}.count()), 2);
  EXPECT_EQ((EvaluationPlan{20, 10}.count()), 1);
}

TEST(EvaluationPlan, IsNeverDueWithoutAValidationSet) {
  EXPECT_FALSE((EvaluationPlan{0, 10}.is_due(10)));
  EXPECT_EQ((EvaluationPlan{0, 10}.count()), 0);
}

}  // namespace
}  // namespace tempo::train
