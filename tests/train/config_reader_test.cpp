// What can be written for a key, and what the messages say: case 16 of cases.md.
#include "train/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/train/written_config.h"

namespace tempo::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::minimal_yaml;
using ::testing::StartsWith;
using testing::WrittenConfig;

std::string with_lr(const std::string& text) { return minimal_yaml("optimizer:\n  lr: " + text + "\n"); }

std::string with_steps(const std::string& text) {
  return "data: {shards: a.hdf5}\n"
         "run: {dir: runs/x}\n"
         "train:\n"
         "  global_batch: 8\n"
         "  steps: " +
         text + "\n";
}

std::string error_of(const std::string& yaml) { return WrittenConfig(yaml).error(); }

TEST(RealNumber, IsReadInEverySpelling) {
  for (const char* text : {"1e-4", "1.0e-4", ".0001", "1E-4", "0.0001", "\"1e-4\"", "'1e-4'"}) {
    EXPECT_EQ(WrittenConfig(with_lr(text)).load().optimizer.lr, 1e-4) << text;
    EXPECT_EQ(WrittenConfig(minimal_yaml()).load({std::string("optimizer.lr=") + text}).optimizer.lr, 1e-4) << text;
  }
  EXPECT_EQ(WrittenConfig(with_lr("1e8")).load().optimizer.lr, 1e8);
  EXPECT_EQ(WrittenConfig(with_lr("5")).load().optimizer.lr, 5);
}

TEST(RealNumber, MustBeTheWholeText) {
  EXPECT_EQ(error_of(with_lr("1e-4x")), "run.yaml:5:7: optimizer.lr: \"1e-4x\" is not a number; allowed: above 0");
  for (const char* text :
       {"nan", ".nan", "NaN", "inf", ".inf", "-inf", "infinity", "1e", "1,5", "0x10", "1 e", "one", "''", "true"}) {
    EXPECT_THAT(error_of(with_lr(text)),
                AllOf(StartsWith("run.yaml:5:7: optimizer.lr: "), HasSubstr("is not a number")))
        << text;
  }
}

TEST(RealNumber, MustLieInItsBounds) {
  for (const char* text : {"-1", "0", "1e999", "1e-999"}) {
    EXPECT_EQ(error_of(with_lr(text)),
              std::string("run.yaml:5:7: optimizer.lr: ") + text + " is out of range; allowed: above 0");
  }
}

TEST(WholeNumber, IsBaseTen) {
  EXPECT_EQ(WrittenConfig(with_steps("010")).load().train.steps, 10);
  EXPECT_EQ(WrittenConfig(with_steps("1e3")).load().train.steps, 1000);
  EXPECT_EQ(WrittenConfig(with_steps("\"7\"")).load().train.steps, 7);
  for (const char* text : {"0x10", "0o10", "1_000", "1 000", "ten", "1e", "true"}) {
    EXPECT_THAT(error_of(with_steps(text)), StartsWith(std::string("run.yaml:5:10: train.steps: \"") + text +
                                                       "\" is not a whole number; allowed: from 1 to 2147483647"))
        << text;
  }
}

TEST(WholeNumber, IsNeitherRoundedNorWrapped) {
  EXPECT_THAT(error_of(with_steps("10.5")), StartsWith("run.yaml:5:10: train.steps: \"10.5\" is not a whole number"));
  for (const char* text : {"-1", "0", "99999999999999999999", "-99999999999999999999", "1e30", "2147483648"}) {
    EXPECT_EQ(error_of(with_steps(text)),
              std::string("run.yaml:5:10: train.steps: ") + text + " is out of range; allowed: from 1 to 2147483647");
  }
}

TEST(WholeNumber, OfTheSeedUsesAll64Bits) {
  const WrittenConfig config(minimal_yaml());
  EXPECT_EQ(config.load({"train.seed=18446744073709551615"}).train.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(config.load({"train.seed=0"}).train.seed, 0u);
  EXPECT_THAT(config.error({"train.seed=18446744073709551616"}), HasSubstr("is out of range; allowed: 0 or more"));
  EXPECT_THAT(config.error({"train.seed=-1"}), HasSubstr("train.seed=-1: -1 is out of range; allowed: 0 or more"));
}

TEST(Boolean, IsTrueOrFalseOnly) {
  for (const char* text : {"false", "False", "FALSE"}) {
    EXPECT_FALSE(WrittenConfig(minimal_yaml()).load({std::string("data.shuffle=") + text}).data.shuffle) << text;
  }
  EXPECT_EQ(error_of(minimal_yaml("optimizer: {bias_correction: \"maybe\"}\n")),
            "run.yaml:4:30: optimizer.bias_correction: \"maybe\" is neither true nor false");
  for (const char* text : {"yes", "no", "on", "1", "0", "tRue"}) {
    EXPECT_THAT(WrittenConfig(minimal_yaml()).error({std::string("data.shuffle=") + text}),
                HasSubstr("is neither true nor false"))
        << text;
  }
}

TEST(Choice, ListsWhatIsAllowed) {
  EXPECT_EQ(error_of(minimal_yaml("optimizer: {name: adam}\n")),
            "run.yaml:4:19: optimizer.name: \"adam\" is not known; allowed: adamw, lamb");
}

TEST(EmptyValue, IsRefusedAndIsNotZero) {
  EXPECT_EQ(error_of(with_steps("")),
            "run.yaml:5:3: train.steps: has no value; needed: a whole number, from 1 to 2147483647");
  for (const char* text : {"~", "null"})
    EXPECT_THAT(error_of(with_steps(text)), HasSubstr("train.steps: has no value")) << text;
  EXPECT_THAT(error_of(minimal_yaml("init: {from: }\n")), HasSubstr("init.from: has no value; needed: a path"));
  EXPECT_THAT(WrittenConfig(minimal_yaml()).error({"train.steps="}), StartsWith("override train.steps=: has no value"));
}

TEST(ValueOfAnotherShape, IsNamed) {
  EXPECT_THAT(error_of(with_steps("[1]")), HasSubstr("train.steps: is a list; needed: a whole number"));
  EXPECT_THAT(error_of(with_steps("{a: 1}")), HasSubstr("train.steps: is a map; needed: a whole number"));
}

TEST(UnknownKey, IsNamedWithTheNearest) {
  EXPECT_EQ(error_of(minimal_yaml("optimizer:\n  lrr: 1e-4\n")),
            "run.yaml:5:3: optimizer.lrr: unknown key; the nearest is optimizer.lr");
  EXPECT_EQ(error_of(minimal_yaml("optimiser: {lrx: 1e-4}\n")),
            "run.yaml:4:13: optimiser.lrx: unknown key; the nearest is optimizer.lr");
  EXPECT_EQ(error_of(minimal_yaml("zzz: {qqqqqqqqqq: 1}\n")), "run.yaml:4:7: zzz.qqqqqqqqqq: unknown key");
  EXPECT_EQ(WrittenConfig(minimal_yaml()).error({"train.stepz=5"}),
            "override train.stepz=5: unknown key; the nearest is train.steps");
}

TEST(UnknownKey, OfAnotherSectionNamesThatSection) {
  EXPECT_EQ(error_of(minimal_yaml("schedule: {lr: 1e-4}\n")),
            "run.yaml:4:12: schedule.lr: unknown key; lr belongs to section optimizer");
  EXPECT_EQ(error_of(minimal_yaml("lr: 1e-4\n")), "run.yaml:4:1: lr: unknown key; lr belongs to section optimizer");
  EXPECT_EQ(error_of(minimal_yaml("model: {name: bert}\n")),
            "run.yaml:4:9: model.name: unknown key; name belongs to section optimizer or schedule");
  EXPECT_EQ(WrittenConfig(minimal_yaml()).error({"steps=5"}),
            "override steps=5: unknown key; steps belongs to section train");
}

TEST(UnknownKey, OfALaterPartIsUnknownNow) {
  EXPECT_THAT(error_of(minimal_yaml("optimizer: {zero: 1}\n")), HasSubstr("optimizer.zero: unknown key"));
  EXPECT_THAT(error_of(minimal_yaml("layers: {flash_backend: ours}\n")), HasSubstr("layers.flash_backend: unknown key"));
  EXPECT_THAT(error_of(minimal_yaml("train2: 1\n")), HasSubstr("train2: unknown key"));
}

TEST(Section, MustHoldKeys) {
  const std::string expected =
      "run.yaml:4:1: optimizer: is a section; write its keys below it, for example optimizer.name";
  EXPECT_EQ(error_of(minimal_yaml("optimizer:\n")), expected);
  EXPECT_EQ(error_of(minimal_yaml("optimizer: {}\n")), expected);
  EXPECT_EQ(error_of(minimal_yaml("optimizer: adamw\n")), expected);
  EXPECT_EQ(error_of(minimal_yaml("optimizer: [name]\n")), expected);
  EXPECT_THAT(WrittenConfig(minimal_yaml()).error({"optimizer=lamb"}), HasSubstr("is a section"));
}

TEST(DoubledKey, IsRefusedAtEveryLevelNamingBothLines) {
  EXPECT_EQ(error_of(minimal_yaml("optimizer:\n  lr: 1\n  eps: 1\n  lr: 2\n")),
            "run.yaml:7:3: optimizer.lr: is given twice; the first is in line 5");
  EXPECT_EQ(error_of(minimal_yaml("run: {dir: other}\n")), "run.yaml:4:1: run: is given twice; the first is in line 3");
  EXPECT_EQ(WrittenConfig(minimal_yaml()).error({"train.steps=4", "train.steps=5"}),
            "override train.steps=5: is given twice; the first is override train.steps=4");
}

TEST(File, MustBeThere) {
  const testing::TemporaryDirectory folder;
  const std::string missing = (folder / "none.yaml").string();
  EXPECT_EQ(testing::value_error_of([&] { load_run_config(missing, {}); }), missing + ": no such file");
  EXPECT_EQ(testing::value_error_of([&] { load_run_config(folder.path(), {}); }),
            folder.path().string() + ": is a folder; a YAML file is needed");
}

TEST(File, IndentedWithTabsIsRefusedNamingTheLine) {
  EXPECT_THAT(error_of("train:\n\tsteps: 5\n"),
              AllOf(StartsWith("run.yaml:2:"), HasSubstr("(indent with spaces, not with tabs)")));
  EXPECT_THAT(error_of("train:\n  steps: 5\n\tseed: 3\n"),
              AllOf(StartsWith("run.yaml:3:"), HasSubstr("(indent with spaces, not with tabs)")));
}

TEST(File, MustBeAMapOfSections) {
  EXPECT_THAT(error_of(""), StartsWith("run.yaml:1:1: a configuration is a map of sections"));
  EXPECT_THAT(error_of("# nothing\n"), StartsWith("run.yaml:1:1: a configuration is a map of sections"));
  EXPECT_THAT(error_of("\n- train\n- data\n"), StartsWith("run.yaml:2:1: a configuration is a map of sections"));
  EXPECT_THAT(error_of("train\n"), StartsWith("run.yaml:1:1: a configuration is a map of sections"));
  EXPECT_THAT(error_of("? [a]\n: 1\n"), HasSubstr("a key must be a plain name"));
}

TEST(File, ThatIsNoYamlIsRefusedNamingTheLine) {
  EXPECT_THAT(error_of("train: {steps: 5\nrun: {dir: x}\n"), StartsWith("run.yaml:2:4: is not YAML: "));
  EXPECT_THAT(error_of("data: {shards: *.hdf5}\n"), AllOf(StartsWith("run.yaml:1:16: is not YAML: "),
                                                          HasSubstr("(put a text that begins with * into quotes)")));
  EXPECT_THAT(error_of(minimal_yaml("---\ntrain: {steps: 5}\n")), StartsWith("run.yaml:5:1: a second YAML document"));
  EXPECT_THAT(error_of(std::string(2000, '[')), StartsWith("run.yaml:1:"));
}

TEST(File, MayHaveAByteOrderMarkAndWindowsLineEnds) {
  const WrittenConfig written(
      "\xef\xbb\xbf"
      "data:\r\n  shards: a\r\ntrain: {steps: 5, global_batch: 2}\r\nrun:\r\n  dir: x\r\n");
  EXPECT_EQ(written.load().run.dir, written.folder() / "x");
  EXPECT_EQ(written.load().train.steps, 5);
}

TEST(File, MayNotReferToItself) {
  EXPECT_THAT(error_of("data: &d {shards: *d}\n"), HasSubstr("data.shards: is a map; needed: a path"));
}

TEST(Override, MustBeKeyEqualsValue) {
  for (const char* text : {"train.steps", "=5", ""}) {
    EXPECT_EQ(WrittenConfig(minimal_yaml()).error({text}),
              std::string("override ") + text + ": must be KEY=VALUE, for example train.steps=1000");
  }
}

TEST(Override, IsTakenAsItStands) {
  const WrittenConfig config(minimal_yaml());
  EXPECT_EQ(config.load({"run.dir=/runs/a: b #1"}).run.dir, "/runs/a: b #1");
  EXPECT_EQ(config.load({"run.dir=/runs/x=y"}).run.dir, "/runs/x=y");
  EXPECT_EQ(config.load({"run.dir=\"/runs/null\""}).run.dir, "/runs/null");
  EXPECT_EQ(config.error({"optimizer.lr=1e-4x"}),
            "override optimizer.lr=1e-4x: \"1e-4x\" is not a number; allowed: above 0");
}

TEST(Override, TakesListsAsYaml) {
  const WrittenConfig config(minimal_yaml());
  const RunConfig loaded = config.load({"data.shards=[/b.hdf5, \"/*.h5\"]", "optimizer.betas=[0.8,0.95]"});
  EXPECT_EQ(loaded.data.shards, (std::vector<std::string>{"/b.hdf5", "/*.h5"}));
  EXPECT_EQ(loaded.optimizer.beta1, 0.8);
  EXPECT_EQ(loaded.optimizer.beta2, 0.95);
  EXPECT_EQ(config.load({"data.shards=/x/*.hdf5"}).data.shards, std::vector<std::string>{"/x/*.hdf5"});
  EXPECT_THAT(config.error({"data.shards=[/b.hdf5"}), StartsWith("override data.shards=[/b.hdf5: is not YAML: "));
}

TEST(List, IsCheckedEntryByEntry) {
  const auto betas = [](const std::string& text) {
    return error_of(minimal_yaml("optimizer: {betas: " + text + "}\n"));
  };
  const std::string shape = "run.yaml:4:20: optimizer.betas: must be a list of 2 numbers, each at least 0 and below 1";
  EXPECT_EQ(betas("0.9"), shape);
  EXPECT_EQ(betas("[0.9]"), shape);
  EXPECT_EQ(betas("[0.9, 0.9, 0.9]"), shape);
  EXPECT_THAT(betas("[0.9, 1]"), HasSubstr("optimizer.betas: 1 is out of range; allowed: at least 0 and below 1"));
  EXPECT_THAT(betas("[0.9, x]"), HasSubstr("optimizer.betas: \"x\" is not a number"));
  EXPECT_THAT(betas("[0.9, ]"), HasSubstr("must be a list of 2 numbers"));
  EXPECT_THAT(betas("[0.9, ~]"), HasSubstr("optimizer.betas: an entry of the list is empty"));
  EXPECT_THAT(betas("[0.9, [0.9]]"), HasSubstr("optimizer.betas: the entries of the list must be single values"));
}

}  // namespace
}  // namespace tempo::train
