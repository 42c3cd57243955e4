#include "train/environment.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tempo::train {
namespace {

using ::testing::MatchesRegex;

const ProgramVersion kProgram = {"0.1.0", "0123456789ab-dirty", "2.11.0", "13.0.88", "80 90"};

TEST(Environment, TextHasOneFactALineInAFixedOrder) {
  const EnvironmentFacts facts = {kProgram, "GCC 12.2.0", "AVX2", 2, "NVIDIA \"H\"", "1.10.8", "72.1"};
  EXPECT_EQ(environment_text(facts),
            "{\n"
            "  \"tempo\": \"0.1.0\",\n"
            "  \"git_revision\": \"0123456789ab-dirty\",\n"
            "  \"libtorch\": \"2.11.0\",\n"
            "  \"compiler\": \"GCC 12.2.0\",\n"
            "  \"cuda\": \"13.0.88\",\n"
            "  \"cuda_architectures\": \"80 90\",\n"
            "  \"cpu_capability\": \"AVX2\",\n"
            "  \"threads\": 2,\n"
            "  \"device\": \"NVIDIA \\\"H\\\"\",\n"
            "  \"hdf5\": \"1.10.8\",\n"
            "  \"icu\": \"72.1\"\n"
            "}\n");
}

TEST(Environment, FactsAreThoseOfThisProcess) {
  const EnvironmentFacts facts = environment_facts(kProgram, c10::DeviceType::CPU);
  EXPECT_EQ(facts.program.git_revision, kProgram.git_revision);
  EXPECT_EQ(facts.threads, at::get_num_threads());
  EXPECT_EQ(facts.device, "cpu");
  EXPECT_FALSE(facts.cpu_capability.empty());
  EXPECT_THAT(facts.compiler, MatchesRegex("(GCC|Clang) [0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(facts.hdf5, MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(facts.icu, MatchesRegex("[0-9]+\\.[0-9.]+"));
}

TEST(Environment, IsTheSameTextEveryTime) {
  const std::string text = environment_text(environment_facts(kProgram, c10::DeviceType::CPU));
  EXPECT_EQ(text, environment_text(environment_facts(kProgram, c10::DeviceType::CPU)));
  EXPECT_TRUE(nlohmann::json::parse(text).is_object());
}

TEST(Environment, RefusesADeviceWithoutName) {
  EXPECT_THROW(environment_facts(kProgram, c10::DeviceType::Meta), c10::Error);
}

}  // namespace
}  // namespace tempo::train
