#include "train/checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <initializer_list>
#include <memory>

#include "model/hf_weights.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"

namespace tempo::train {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::value_error_of;
namespace fs = std::filesystem;

model::ModelConfig tiny() {
  model::ModelConfig config;
  config.vocab_size = 13;
  config.vocab_multiple = 8;
  config.hidden_size = 8;
  config.num_layers = 1;
  config.num_heads = 2;
  config.intermediate_size = 16;
  config.max_positions = 12;
  return config;
}

/// A model and an optimizer in a state that one update has left, drawn from `seed`.
struct Trained {
  explicit Trained(std::uint64_t seed)
      : model(model::make_model(tiny(), c10::kCPU)), optimizer(OptimizerConfig(), (fill(seed), model->parameters())) {
    for (const auto& parameter : model->parameters().all()) {
      at::Tensor value = parameter.value;
      value.mutable_grad() = at::full_like(value, 0.01 * static_cast<double>(seed));
    }
    optimizer.step(1e-2, at::ones({}), at::ones({}, at::kBool));
  }

  void fill(std::uint64_t seed) { model->parameters().initialise(seed); }

  NamedTensors tensors() const {
    NamedTensors all = model::named_weights(*model, model::VocabularyRows::kPadded);
    for (auto& entry : optimizer.state()) all.push_back(entry);
    return all;
  }

  std::unique_ptr<model::Model> model;
  Optimizer optimizer;
};

void load(const fs::path& folder, const TrainState& state, Trained& trained) {
  load_weights_as_saved(folder, *trained.model);
  load_optimizer(folder, state, trained.optimizer);
}

bool equal(const NamedTensors& one, const NamedTensors& other) {
  if (one.size() != other.size()) return false;
  for (std::size_t index = 0; index < one.size(); ++index) {
    if (!at::equal(one[index].second, other[index].second)) return false;
  }
  return true;
}

void flip(const fs::path& file, std::size_t byte) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(static_cast<std::streamoff>(byte));
  const int value = stream.get();
  stream.seekp(static_cast<std::streamoff>(byte));
  stream.put(static_cast<char>(value ^ 0x10));
}

class CheckpointTest : public ::testing::Test {
 protected:
  void save(const Trained& trained, std::initializer_list<std::int64_t> steps, std::int64_t keep = 0) {
    CheckpointSaver saver(checkpoints_, keep, *trained.model, trained.optimizer, {}, [] {});
    for (const std::int64_t step : steps) saver.save({step, 0, 10 * step, 100 * step, 90 * step, 1000});
    saver.finish();
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const fs::path& folder : list_checkpoints(checkpoints_)) names.push_back(folder.filename().string());
    return names;
  }

  std::optional<IntactCheckpoint> newest() {
    complaints_.clear();
    return newest_intact(checkpoints_, [this](const fs::path& folder, const std::string& reason) {
      complaints_.push_back(folder.filename().string() + ": " + reason);
    });
  }

  testing::TemporaryDirectory folder_;
  fs::path checkpoints_ = folder_ / "checkpoints";
  std::vector<std::string> complaints_;
};

TEST_F(CheckpointTest, GivesBackEveryBitOfTheState) {
  const Trained saved(3);
  save(saved, {7});
  const auto found = newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 7);
  EXPECT_EQ(found->state.optimizer_updates, 1);
  EXPECT_EQ(found->state.sequences, 70);
  EXPECT_EQ(found->state.tokens, 700);
  EXPECT_EQ(found->state.real_tokens, 630);
  EXPECT_EQ(found->state.examples, 1000);
  Trained other(5);
  other.optimizer.set_num_updates(99);
  EXPECT_FALSE(equal(saved.tensors(), other.tensors()));
  load(found->folder, found->state, other);
  EXPECT_TRUE(equal(saved.tensors(), other.tensors()));
  EXPECT_EQ(other.optimizer.num_updates(), 1);
}

TEST_F(CheckpointTest, ASaveIsOfTheMomentThatItWasAskedFor) {
  Trained trained(3);
  CheckpointSaver saver(checkpoints_, 0, *trained.model, trained.optimizer, {}, [] {});
  saver.save({1, 0, 0, 0, 0, 1});
  const NamedTensors then = Trained(3).tensors();
  trained.fill(8);  // the training goes on while the copy is written
  saver.finish();
  Trained loaded(5);
  const auto found = newest();
  load(found->folder, found->state, loaded);
  EXPECT_TRUE(equal(then, loaded.tensors()));
}

TEST_F(CheckpointTest, TheNewestStay) {
  save(Trained(3), {1, 2, 30, 4000}, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00004000", "step-00000030"}));
}

TEST_F(CheckpointTest, DamagedLaterOnesDoNotPushIntactOnesOut) {
  save(Trained(3), {1, 2, 90}, 0);
  save(Trained(3), {3}, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000090", "step-00000003", "step-00000002"}));
}

TEST_F(CheckpointTest, EveryFlippedByteIsFoundNamedAndFallenBackFrom) {
  save(Trained(3), {1, 2});
  const fs::path newer = checkpoints_ / "step-00000002";
  for (const auto& entry : fs::directory_iterator(newer)) {
    const auto size = static_cast<std::size_t>(entry.file_size());
    for (std::size_t byte = 0; byte < size; byte += std::max<std::size_t>(1, size / 97)) {
      flip(entry.path(), byte);
      const auto found = newest();
      ASSERT_TRUE(found);
      EXPECT_EQ(found->state.step, 1) << entry.path() << " byte " << byte;
      ASSERT_EQ(complaints_.size(), 1u);
      EXPECT_THAT(complaints_.front(), StartsWith("step-00000002: " + newer.string() + "/"));
      flip(entry.path(), byte);
    }
  }
  EXPECT_EQ(newest()->state.step, 2);
}

TEST_F(CheckpointTest, AMissingOrShortenedFileIsFound) {
  save(Trained(3), {1, 2});
  const fs::path newer = checkpoints_ / "step-00000002";
  for (const char* name : {"COMPLETE", "state.json", "config.json", "model.safetensors", "optimizer.safetensors"}) {
    const fs::path aside = folder_ / "aside";
    fs::rename(newer / name, aside);
    EXPECT_EQ(newest()->state.step, 1) << name;
    fs::copy_file(aside, newer / name);
    fs::resize_file(newer / name, fs::file_size(aside) / 2);
    EXPECT_EQ(newest()->state.step, 1) << name;
    fs::remove(newer / name);
    fs::rename(aside, newer / name);
  }
  EXPECT_EQ(newest()->state.step, 2);
}

TEST_F(CheckpointTest, ARenamedOneIsNotTakenForAnotherStep) {
  save(Trained(3), {1});
  fs::rename(checkpoints_ / "step-00000001", checkpoints_ / "step-00000009");
  EXPECT_FALSE(newest());
  EXPECT_THAT(complaints_.front(), HasSubstr("its name is not that of its step, 1"));
}

TEST_F(CheckpointTest, OtherFoldersAreNotLookedAt) {
  save(Trained(3), {1});
  for (const char* name : {"step-1", "step-0000000x", "backup", ".step-00000002.writing-1"}) {
    fs::create_directories(checkpoints_ / name);
  }
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000001"});
  save(Trained(3), {2});
  EXPECT_FALSE(fs::exists(checkpoints_ / ".step-00000002.writing-1"));  // what a killed writer left
  EXPECT_TRUE(fs::exists(checkpoints_ / "backup"));
}

TEST_F(CheckpointTest, AFailedSaveIsToldAtTheNextOne) {
  Trained trained(3);
  CheckpointSaver saver(folder_ / "a-file" / "checkpoints", 0, *trained.model, trained.optimizer, {}, [] {});
  std::ofstream(folder_ / "a-file") << "in the way";
  saver.save({1, 0, 0, 0, 0, 1});
  EXPECT_THROW(saver.finish(), c10::Error);
  EXPECT_NO_THROW(saver.finish());
}

TEST_F(CheckpointTest, WeightsAloneAreNoStateToContinueFrom) {
  Trained trained(3);
  write_checkpoint(
      checkpoints_ / "step-00000001",
      {tiny(), {1, 0, 0, 0, 0, 0}, model::named_weights(*trained.model, model::VocabularyRows::kPadded), {}, {}});
  const TrainState state = verify_checkpoint(checkpoints_ / "step-00000001");
  EXPECT_THAT(value_error_of([&] { load(checkpoints_ / "step-00000001", state, trained); }),
              HasSubstr("holds weights only"));
}

TEST_F(CheckpointTest, OneOfAnotherModelIsRefused) {
  save(Trained(3), {1});
  model::ModelConfig larger = tiny();
  larger.num_layers = 2;
  const auto model = model::make_model(larger, c10::kCPU);
  model->parameters().initialise(1);
  const auto found = newest();
  EXPECT_THAT(value_error_of([&] { load_weights_as_saved(found->folder, *model); }), HasSubstr("model.safetensors"));
}

}  // namespace
}  // namespace tempo::train
