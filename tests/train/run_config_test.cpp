#include "train/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/train/written_config.h"
#include "train/config_fields.h"

namespace tempo::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::minimal_yaml;
using ::testing::Not;
using ::testing::StartsWith;
using testing::WrittenConfig;

std::string error_of(const std::string& more) { return WrittenConfig(minimal_yaml(more)).error(); }

RunConfig load_with(const std::string& more) { return WrittenConfig(minimal_yaml(more)).load(); }

/// Text that holds every value of a configuration: resolved_yaml writes each key, and the tests of single keys prove
/// that.
std::string text_of(const RunConfig& config) { return resolved_yaml(config); }

TEST(RunConfig, HasTheDefaultsOfTheDesign) {
  const WrittenConfig written(minimal_yaml());
  const RunConfig config = written.load();
  EXPECT_EQ(config.model.hidden_size, 768);
  EXPECT_EQ(config.layers_preset, "baseline");
  EXPECT_EQ(config.data.shards, std::vector<std::string>{(written.folder() / "a.hdf5").string()});
  EXPECT_EQ(config.data.sequence_length, 0);
  EXPECT_TRUE(config.data.shuffle);
  EXPECT_EQ(config.train.device, "auto");
  EXPECT_EQ(config.train.precision, "fp32");
  EXPECT_EQ(config.train.micro_batch, 8);  // the global batch
  EXPECT_EQ(config.train.seed, 42u);
  EXPECT_EQ(config.train.grad_clip, 1);
  EXPECT_EQ(config.optimizer.name, "adamw");
  EXPECT_EQ(config.optimizer.eps, 1e-6);
  EXPECT_EQ(config.schedule.kind, ScheduleKind::kLinear);
  EXPECT_EQ(config.run.dir, written.folder() / "runs/x");
  EXPECT_TRUE(config.run.export_model);
  EXPECT_FALSE(config.run.overwrite);
  EXPECT_FALSE(config.init.from.has_value());
}

TEST(RunConfig, MicroBatchIsTheGlobalBatchButAtMost32) {
  const WrittenConfig written(minimal_yaml());
  EXPECT_EQ(written.load({"train.global_batch=32"}).train.micro_batch, 32);
  EXPECT_EQ(written.load({"train.global_batch=33"}).train.micro_batch, 32);
  EXPECT_EQ(written.load({"train.global_batch=64", "train.micro_batch=50"}).train.micro_batch, 50);
}

TEST(RunConfig, AcceptsTheInstrumentsOfTheCases) {
  const RunConfig config = WrittenConfig(minimal_yaml())
                               .load({"optimizer.lr=1e8", "optimizer.eps=1e6", "optimizer.weight_decay=0",
                                      "train.grad_clip=0", "schedule.name=constant"});
  EXPECT_EQ(config.optimizer.lr, 1e8);
  EXPECT_EQ(config.optimizer.eps, 1e6);
  EXPECT_EQ(config.learning_rates().lr(1), 1e8);
}

TEST(RunConfig, NamesEveryMissingKeyWithALineToWrite) {
  EXPECT_EQ(WrittenConfig("train: {steps: 5}\nrun: {dir: x}\n").error(),
            "run.yaml: data.shards is missing, write for example data: {shards: [shards/*.hdf5]}; "
            "train.global_batch is missing, write for example train: {global_batch: 256}");
  for (const char* line : {"data: {shards: a}\n", "run: {dir: x}\n", "train: {steps: 5}\n"}) {
    EXPECT_THAT(WrittenConfig(line).error(), HasSubstr(" is missing, write for example ")) << line;
  }
  EXPECT_THAT(WrittenConfig("data: {shards: a}\nrun: {dir: x}\ntrain: {global_batch: 5}\n").error(),
              StartsWith("run.yaml: train.steps is missing"));
}

TEST(RunConfig, AnOverrideCompletesOrReplacesTheFile) {
  const WrittenConfig written("data: {shards: a}\ntrain: {steps: 5, global_batch: 2}\n");
  const RunConfig config = written.load({"run.dir=/tmp/r", "train.steps=6"});
  EXPECT_EQ(config.run.dir, "/tmp/r");
  EXPECT_EQ(config.train.steps, 6);
}

TEST(RunConfig, SingleModelKeysOverrideSize) {
  const RunConfig config = load_with("model: {size: tiny, num_heads: 4, vocab_size: 100}\n");
  EXPECT_EQ(config.model.hidden_size, 128);
  EXPECT_EQ(config.model.num_layers, 2);
  EXPECT_EQ(config.model.num_heads, 4);
  EXPECT_EQ(config.model.intermediate_size, 512);
  EXPECT_EQ(config.model.vocab_size, 100);
}

TEST(RunConfig, RefusesImpossibleModels) {
  EXPECT_EQ(error_of("model: {num_heads: 5}\n"),
            "run.yaml:4:20: model.num_heads: hidden_size 768 is not a multiple of num_heads 5");
  EXPECT_EQ(error_of("model: {hidden_size: 770}\n"),
            "run.yaml:4:22: model.hidden_size: hidden_size 770 is not a multiple of num_heads 12");
  EXPECT_EQ(error_of("model: {size: huge}\n"),
            "run.yaml:4:15: model.size: \"huge\" is not known; allowed: tiny, mini, small, medium, base, large");
  EXPECT_EQ(error_of("model: {hidden_act: relu}\n"),
            "run.yaml:4:21: model.hidden_act: \"relu\" is not known; allowed: gelu, gelu_new, gelu_pytorch_tanh");
  EXPECT_EQ(error_of("model: {family: gpt2}\n"), "run.yaml:4:17: model.family: \"gpt2\" is not known; allowed: bert");
  EXPECT_EQ(error_of("model: {hidden_dropout: 1}\n"),
            "run.yaml:4:25: model.hidden_dropout: 1 is out of range; allowed: at least 0 and below 1");
  EXPECT_THAT(error_of("model: {vocab_size: 0}\n"),
              HasSubstr("model.vocab_size: 0 is out of range; allowed: from 1 to"));
}

TEST(RunConfig, RefusesSettingsWithoutEffect) {
  EXPECT_EQ(
      error_of("model: {size: tiny, hidden_size: 8, num_heads: 2, num_layers: 1, intermediate_size: 8}\n"),
      "run.yaml:4:15: model.size: has no effect, because hidden_size, num_layers, num_heads and intermediate_size are "
      "all given");
  EXPECT_EQ(error_of("schedule: {name: constant, min_lr: 1e-6}\n"),
            "run.yaml:4:36: schedule.min_lr: has no effect, because schedule.name constant does not decay");
  EXPECT_EQ(load_with("schedule: {name: constant, min_lr: 0}\n").schedule.min_lr, 0);
}

TEST(RunConfig, EvaluatesTwentyTimesUnlessToldOtherwise) {
  const WrittenConfig written(minimal_yaml());
  EXPECT_EQ(written.load().train.evaluate_every, 0);
  EXPECT_EQ(written.load({"data.validation=v.hdf5", "train.steps=100"}).train.evaluate_every, 5);
  EXPECT_EQ(written.load({"data.validation=v.hdf5"}).train.evaluate_every, 1);
  EXPECT_EQ(written.load({"data.validation=v.hdf5", "train.evaluate_every=7"}).train.evaluate_every, 7);
  EXPECT_EQ(written.error({"train.evaluate_every=7"}),
            "override train.evaluate_every=7: has no effect, because data.validation is not set");
  EXPECT_THAT(written.error({"data.validation=v.hdf5", "train.evaluate_every=0"}), HasSubstr("0 is out of range"));
}

TEST(RunConfig, RefusesKeysThatContradictEachOther) {
  EXPECT_EQ(WrittenConfig(minimal_yaml()).error({"train.micro_batch=9"}),
            "override train.micro_batch=9: 9 is more than train.global_batch 8");
  EXPECT_THAT(WrittenConfig(minimal_yaml()).error({"train.micro_batch=0"}), HasSubstr("0 is out of range"));
  EXPECT_EQ(error_of("schedule: {warmup_steps: 11}\n"),
            "run.yaml:4:26: schedule.warmup_steps: 11 is more than train.steps 10");
  EXPECT_EQ(error_of("schedule: {min_lr: 1}\n"), "run.yaml:4:20: schedule.min_lr: 1 is more than optimizer.lr 0.0001");
  EXPECT_EQ(WrittenConfig(minimal_yaml()).error({"data.sequence_length=513"}),
            "override data.sequence_length=513: 513 is more than model.max_positions 512");
  EXPECT_EQ(WrittenConfig(minimal_yaml()).error({"data.sequence_length=10", "data.max_predictions=11"}),
            "override data.max_predictions=11: 11 is more than data.sequence_length 10");
}

TEST(RunConfig, WarmupIsWrittenAsStepsOrAsRatioButNotBoth) {
  EXPECT_EQ(load_with("schedule: {warmup_steps: 4}\n").schedule.warmup_steps, 4);
  EXPECT_EQ(load_with("schedule: {warmup_ratio: 0.25}\n").schedule.warmup_steps, 2.5);
  EXPECT_EQ(load_with("schedule: {warmup_ratio: 1}\n").schedule.warmup_steps, 10);
  EXPECT_EQ(error_of("schedule: {warmup_steps: 4, warmup_ratio: 0.1}\n"),
            "run.yaml:4:29: schedule.warmup_ratio: cannot be given together with schedule.warmup_steps (run.yaml:4:26: "
            "schedule.warmup_steps)");
  EXPECT_THAT(WrittenConfig(minimal_yaml()).error({"schedule.warmup_ratio=0.1", "schedule.warmup_steps=4"}),
              HasSubstr("cannot be given together"));
}

TEST(RunConfig, AnOverrideOfTheWarmupReplacesTheOtherKeyOfTheFile) {
  EXPECT_EQ(WrittenConfig(minimal_yaml("schedule: {warmup_ratio: 0.3}\n"))
                .load({"schedule.warmup_steps=4"})
                .schedule.warmup_steps,
            4);
  EXPECT_EQ(WrittenConfig(minimal_yaml("schedule: {warmup_steps: 4}\n"))
                .load({"schedule.warmup_ratio=0.3"})
                .schedule.warmup_steps,
            3);
}

TEST(RunConfig, RatioTimesStepsIsWholeWhereItShouldBe) {
  EXPECT_NE(0.29 * 100, 29);
  const RunConfig config = WrittenConfig(minimal_yaml("schedule: {warmup_ratio: 0.29}\n")).load({"train.steps=100"});
  EXPECT_EQ(config.schedule.warmup_steps, 29);
  EXPECT_EQ(config.learning_rates().lr(29), config.optimizer.lr);
}

TEST(RunConfig, LearningRatesFollowTheSchedule) {
  const RunConfig config =
      load_with("optimizer: {lr: 1e-3}\nschedule: {name: cosine, warmup_steps: 4, min_lr: 1e-5}\n");
  const Schedule schedule = config.learning_rates();
  EXPECT_EQ(schedule.kind, ScheduleKind::kCosine);
  EXPECT_EQ(schedule.num_steps, 10);
  EXPECT_EQ(schedule.lr(4), 1e-3);
  EXPECT_EQ(schedule.lr(10), 1e-5);
}

TEST(RunConfig, PathsOfTheFileStartAtItsFolderWhateverTheWorkingDirectory) {
  const WrittenConfig written(
      "data: {shards: [../d/*.hdf5, ./e.hdf5, /abs.hdf5]}\ntrain: {steps: 1, global_batch: 1}\nrun: {dir: runs/x/}\n");
  const auto before = std::filesystem::current_path();
  const std::string here = text_of(written.load());
  std::filesystem::current_path(written.folder());
  const RunConfig config = load_run_config("run.yaml", {});
  const RunConfig overridden = load_run_config("run.yaml", {"run.dir=elsewhere"});
  std::filesystem::current_path(before);
  EXPECT_EQ(text_of(config), here);
  EXPECT_EQ(config.data.shards[0], (written.folder().parent_path() / "d/*.hdf5").string());
  EXPECT_EQ(config.data.shards[1], (written.folder() / "e.hdf5").string());
  EXPECT_EQ(config.data.shards[2], "/abs.hdf5");
  EXPECT_EQ(config.run.dir, written.folder() / "runs/x");
  EXPECT_EQ(overridden.run.dir, written.folder() / "elsewhere");
  EXPECT_EQ(written.load({"run.dir=elsewhere"}).run.dir, before / "elsewhere");
}

TEST(RunConfig, RefusesPathsThatAreNone) {
  const WrittenConfig written(minimal_yaml());
  EXPECT_THAT(written.error({"run.dir=~/runs"}), HasSubstr("~ is not replaced here; write the whole path"));
  EXPECT_THAT(written.error({"run.dir=\"\""}), HasSubstr("the path is empty"));
  EXPECT_THAT(written.error({"data.shards=[]"}), HasSubstr("the list is empty"));
  EXPECT_THAT(written.error({"data.shards=[a, '']"}), HasSubstr("the path is empty"));
}

TEST(ResolvedYaml, HoldsEveryKeyAndReadsBackToTheSameRunFromAnotherFolder) {
  const WrittenConfig written(
      minimal_yaml("model: {size: tiny, hidden_act: gelu_new, layer_norm_eps: 1e-5, hidden_dropout: 0.3}\n"
                   "layers: {preset: baseline}\n"
                   "optimizer: {name: lamb, lr: 6.0e-3, betas: [0.8, 0.98], eps: 3e-7, bias_correction: false}\n"
                   "schedule: {name: poly, warmup_ratio: 0.2843, min_lr: 1e-6}\n"));
  const RunConfig config = written.load({"data.shards=['sh \"ards/*.hdf5', b.hdf5]", "train.seed=18446744073709551615",
                                         "run.overwrite=true", "run.export=false", "train.grad_clip=0.1"});
  const std::string text = resolved_yaml(config);
  const WrittenConfig again(text);
  const RunConfig reloaded = again.load();
  EXPECT_EQ(resolved_yaml(reloaded), text);
  EXPECT_EQ(reloaded.schedule.warmup_steps, config.schedule.warmup_steps);
  EXPECT_EQ(reloaded.schedule.kind, ScheduleKind::kPoly);
  EXPECT_EQ(reloaded.data.shards, config.data.shards);
  EXPECT_EQ(reloaded.train.seed, config.train.seed);
  EXPECT_EQ(reloaded.model.layer_norm_eps, 1e-5);
  EXPECT_EQ(reloaded.optimizer.beta2, 0.98);
  EXPECT_EQ(reloaded.run.dir, config.run.dir);
  EXPECT_THAT(text, AllOf(HasSubstr("  hidden_size: 128\n"), HasSubstr("  lr: 0.006\n"), HasSubstr("  eps: 3.0e-07\n"),
                          Not(HasSubstr("warmup_ratio")), Not(HasSubstr("\n  size:")), Not(HasSubstr("init:"))));
}

TEST(ResolvedYaml, HoldsTheValidationWhereThereIsOne) {
  const WrittenConfig written(minimal_yaml());
  EXPECT_THAT(resolved_yaml(written.load()), AllOf(Not(HasSubstr("validation")), Not(HasSubstr("evaluate_every"))));
  const RunConfig config = written.load({"data.validation=[/v/a.hdf5, /v/b*.hdf5]", "train.steps=60"});
  const std::string text = resolved_yaml(config);
  EXPECT_THAT(text, AllOf(HasSubstr("  validation:\n    - \"/v/a.hdf5\"\n    - \"/v/b*.hdf5\"\n"),
                          HasSubstr("  evaluate_every: 3\n")));
  EXPECT_EQ(resolved_yaml(WrittenConfig(text).load()), text);
}

TEST(Layers, APresetGivesEveryKeyThatIsNotWritten) {
  const layers::LayerOptions lean = load_with("layers: {preset: lean, gelu: tempo, masks: byte}\n").layers;
  EXPECT_EQ(lean.gelu, layers::GeluOption::kTempo);
  EXPECT_EQ(lean.attention, layers::AttentionOption::kFlash);
  EXPECT_EQ(lean.masks, layers::MaskKeep::kBytes);
  EXPECT_EQ(load_with("layers: {recompute: ffn}\n").layers.gelu, layers::GeluOption::kRecompute);
}

TEST(Layers, APresetInAnOverrideReplacesTheKeysOfTheFile) {
  const WrittenConfig written(minimal_yaml("layers: {preset: tempo, gelu: baseline}\n"));
  EXPECT_EQ(written.load({"layers.preset=lean"}).layers.gelu, layers::GeluOption::kRecompute);
  EXPECT_EQ(written.load({"layers.preset=lean", "layers.gelu=tempo"}).layers.gelu, layers::GeluOption::kTempo);
  EXPECT_EQ(written.load({"layers.dropout=regenerate"}).layers.gelu, layers::GeluOption::kBaseline);
  EXPECT_EQ(written.load({"layers.recompute=ffn"}).layers.gelu, layers::GeluOption::kRecompute);
}

TEST(ResolvedYaml, WritesTheSectionsInOrder) {
  const WrittenConfig written(minimal_yaml());
  const std::string folder = written.folder().string();
  EXPECT_EQ(
      resolved_yaml(written.load({"optimizer.lr=2e-5"})),
      "model:\n  family: bert\n  hidden_size: 768\n  num_layers: 12\n  num_heads: 12\n  intermediate_size: 3072\n"
      "  vocab_size: 30522\n  max_positions: 512\n  type_vocab_size: 2\n  vocab_multiple: 1\n  hidden_act: gelu\n"
      "  layer_norm_eps: 1.0e-12\n  hidden_dropout: 0.1\n  attention_dropout: 0.1\n"
      "layers:\n  preset: baseline\n  gelu: baseline\n  layer_norm: baseline\n  dropout: baseline\n"
      "  attention: baseline\n  recompute: none\n"
      "data:\n  shards:\n    - \"" +
          folder +
          "/a.hdf5\"\n  sequence_length: 0\n  max_predictions: 0\n  shuffle: true\n"
          "train:\n  device: auto\n  precision: fp32\n  global_batch: 8\n  micro_batch: 8\n  steps: 10\n  seed: 42\n"
          "  grad_clip: 1\n  threads: 0\n  max_skipped_steps: 10\n"
          "optimizer:\n  name: adamw\n  lr: 2.0e-05\n  weight_decay: 0.01\n  betas: [0.9, 0.999]\n  eps: 1.0e-06\n"
          "  bias_correction: true\n"
          "schedule:\n  name: linear\n  warmup_steps: 0\n  min_lr: 0\n"
          "run:\n  dir: \"" +
          folder +
          "/runs/x\"\n  log_every: 10\n  checkpoint_every: 0\n  keep: 3\n  export: true\n  overwrite: false\n");
}

TEST(DescribeKeys, HoldsEveryKeyOfTheDesignIn100Columns) {
  const std::string text = describe_keys();
  for (const Field& field : config_fields()) EXPECT_THAT(text, HasSubstr("\n  " + field.key + ": ")) << field.key;
  EXPECT_THAT(text, HasSubstr("  optimizer.lr: number, above 0 (default 0.0001)\n      Learning rate at"));
  EXPECT_THAT(text, HasSubstr("  train.steps: whole number, from 1 to 2147483647 (required)\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

}  // namespace
}  // namespace tempo::train
