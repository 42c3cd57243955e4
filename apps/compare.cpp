#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "model/bounds.h"
#include "train/run_comparison.h"

namespace tempo::apps {
namespace {

using Json = nlohmann::ordered_json;
using train::NumberDifference;
using train::RunComparison;
using train::TextDifference;

constexpr int kDiffers = 1;  // as diff

struct Arguments {
  std::string a;
  std::string b;
  bool json = false;
};

/// null for what is not there, and for what is not finite.
template <typename T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json list_json(const std::vector<TextDifference>& differences) {
  Json list = Json::array();
  for (const TextDifference& difference : differences) {
    list.push_back({{"key", difference.key}, {"a", optional_json(difference.a)}, {"b", optional_json(difference.b)}});
  }
  return list;
}

Json comparison_json(const RunComparison& comparison) {
  const NumberDifference first = comparison.first.value_or(NumberDifference{});
  return {{"config", list_json(comparison.config)},
          {"environment", list_json(comparison.environment)},
          {"environment_compared", comparison.has_environments()},
          {"first_step", comparison.first ? Json(first.step) : Json()},
          {"key", comparison.first ? Json(first.key) : Json()},
          {"a", optional_json(first.a)},
          {"b", optional_json(first.b)},
          {"relative_difference", optional_json(first.relative())},
          {"steps_agreeing", comparison.steps_agreeing},
          {"steps_compared", comparison.steps_compared},
          {"last_step_a", comparison.a_last_step},
          {"last_step_b", comparison.b_last_step}};
}

/// "1 step", "2 steps".
std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string pair_text(const TextDifference& difference) {
  return difference.key + ": " + difference.a.value_or("(not set)") + " | " + difference.b.value_or("(not set)");
}

void print_line(const std::string& head, const std::string& text) {
  std::cout << fmt::format("{:<13}{}\n", head, text);
}

void print_differences(const std::string& head, const std::string& noun,
                       const std::vector<TextDifference>& differences) {
  if (differences.empty()) return print_line(head, "the same");
  print_line(head,
             fmt::format("{} differ{}; the first is {}", counted(static_cast<std::int64_t>(differences.size()), noun),
                         differences.size() == 1 ? "s" : "", pair_text(differences.front())));
  for (std::size_t i = 1; i < differences.size(); ++i) print_line("", "also " + pair_text(differences[i]));
}

std::string number_text(const std::optional<double>& number) {
  if (!number) return "(none)";
  return std::isfinite(*number) ? model::number_text(*number) : "not finite";
}

void print_steps(const RunComparison& comparison) {
  const std::string common = counted(comparison.steps_compared, "logged step");
  if (comparison.first) {
    const NumberDifference& first = *comparison.first;
    const std::optional<double> relative = first.relative();
    const std::string size = relative ? fmt::format(" (relative difference {:.2g})", *relative) : "";
    print_line("steps", fmt::format("step {} is the first that differs: {} {} | {}{}; {} before agree{}", first.step,
                                    first.key, number_text(first.a), number_text(first.b), size,
                                    counted(comparison.steps_agreeing, "logged step"),
                                    comparison.steps_agreeing == 1 ? "s" : ""));
  } else if (comparison.steps_compared == 0) {
    print_line("steps", "none is logged in both: nothing was compared");
  } else {
    print_line("steps", "the same in all " + common);
  }
  if (comparison.a_last_step != comparison.b_last_step) {
    print_line("", fmt::format("A was logged to step {}, B to step {}; the {} of both were compared",
                               comparison.a_last_step, comparison.b_last_step, common));
  }
}

void print_for_people(const RunComparison& comparison) {
  print_differences("config", "key", comparison.config);
  if (comparison.has_environments()) {
    print_differences("environment", "line", comparison.environment);
  } else {
    const bool is_one = comparison.a_has_environment || comparison.b_has_environment;
    print_line("environment",
               fmt::format("{} environment.json: not compared",
                           is_one ? (comparison.a_has_environment ? "B has no" : "A has no") : "neither has an"));
  }
  print_steps(comparison);
}

void compare(const Arguments& arguments) {
  const RunComparison comparison = train::compare_runs(arguments.a, arguments.b);
  if (arguments.json) {
    std::cout << comparison_json(comparison).dump() << "\n";
  } else {
    print_for_people(comparison);
  }
  if (!comparison.agrees()) throw CLI::RuntimeError(kDiffers);
}

}  // namespace

void add_compare(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("compare", "Show where two runs part: configuration, environment, first step");
  command->add_option("RUN_A", arguments->a, "A run directory")->required();
  command->add_option("RUN_B", arguments->b, "Another run directory")->required();
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Numbers of metrics.jsonl are compared exactly, at the steps that both runs logged; times, rates and peaks do "
      "not\n"
      "count, nor do run.dir, run.overwrite and how far each run got.\n"
      "Exit code 0: nothing differs, 1: something does or no step could be compared, 2: a mistake.");
  command->callback([arguments] { compare(*arguments); });
}

}  // namespace tempo::apps
