#include <c10/util/Exception.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/folder_summaries.h"
#include "data/shard.h"

namespace tempo::apps {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

struct Arguments {
  std::string path;
  std::vector<std::int64_t> rows;
  bool json = false;
};

Json shard_summary(const data::Shard& shard) {
  std::int64_t real_tokens = 0;
  std::int64_t labels = 0;
  std::int64_t random_next = 0;
  for (std::int64_t row = 0; row < shard.shape.num_rows; ++row) {
    real_tokens += shard.lengths[row];
    labels += shard.num_labels[row];
    random_next += shard.next_sentence_labels[row];
  }
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  const auto largest = std::max_element(shard.input_ids.begin(), shard.input_ids.end());
  return {{"kind", "shard"},
          {"rows", shard.shape.num_rows},
          {"sequence_length", shard.shape.sequence_length},
          {"max_predictions", shard.shape.max_predictions},
          {"fill", share(real_tokens, shard.shape.num_rows * shard.shape.sequence_length)},
          {"masked_share", share(labels, real_tokens)},
          {"next_sentence_share", share(random_next, shard.shape.num_rows)},
          {"max_token_id", largest == shard.input_ids.end() ? 0 : *largest}};
}

Json shard_row(const data::Shard& shard, std::int64_t row) {
  TORCH_CHECK_VALUE(row >= 0 && row < shard.shape.num_rows, shard.path.string(), " has rows 0 to ",
                    shard.shape.num_rows - 1, ", not ", row);
  const auto cut = [row](const std::vector<std::int32_t>& values, std::int64_t width) {
    return std::vector<std::int32_t>(values.begin() + row * width, values.begin() + (row + 1) * width);
  };
  std::vector<std::int32_t> mask(shard.shape.sequence_length, 0);
  std::fill_n(mask.begin(), shard.lengths[row], 1);
  return {{"row", row},
          {"input_ids", cut(shard.input_ids, shard.shape.sequence_length)},
          {"input_mask", mask},
          {"segment_ids", cut(shard.segment_ids, shard.shape.sequence_length)},
          {"masked_lm_positions", cut(shard.masked_lm_positions, shard.shape.max_predictions)},
          {"masked_lm_ids", cut(shard.masked_lm_ids, shard.shape.max_predictions)},
          {"next_sentence_labels", shard.next_sentence_labels[row]}};
}

void print_line(const std::string& key, const Json& value) {
  std::cout << key << std::string(key.size() < 22 ? 22 - key.size() : 1, ' ')
            << (value.is_string() ? value.get<std::string>()
                : value.is_null() ? "none"
                                  : value.dump())
            << "\n";
}

void print_tensors(const Json& tensors) {
  for (const auto& [name, tensor] : tensors.items()) {
    std::cout << "  " << tensor["dtype"].get<std::string>() << " " << tensor["shape"].dump() << "  " << name << "\n";
  }
}

/// "key  value" lines; lists on one line, members of an object as "key.member", tensors one a line (not a run's).
void print_for_people(const Json& result) {
  const bool is_run = result.value("kind", "") == "run";
  for (const auto& [key, value] : result.items()) {
    if (key == "tensors" || key == "optimizer_tensors") {
      if (is_run) continue;
      if (key == "optimizer_tensors") print_line(key, value.size());
      print_tensors(value);
    } else if (value.is_object()) {
      for (const auto& [member, held] : value.items()) print_line(key + "." + member, held);
    } else {
      print_line(key, value);
    }
  }
}

std::vector<Json> describe(const Arguments& arguments) {
  const fs::path path = arguments.path;
  TORCH_CHECK_VALUE(fs::exists(path), path.string(), " does not exist");
  if (fs::is_directory(path)) {
    TORCH_CHECK_VALUE(arguments.rows.empty(), "--row shows rows of a shard; ", path.string(), " is a folder");
    return {folder_summary(path)};
  }
  const data::Shard shard = data::read_shard(path, {});
  if (arguments.rows.empty()) {
    Json summary = shard_summary(shard);
    for (const auto& [name, value] : data::read_attributes(path)) {
      if (summary.contains(name)) continue;  // what the rows say counts
      std::visit([&, name = name](const auto& held) { summary[name] = held; }, value);
    }
    return {summary};
  }
  std::vector<Json> rows;
  for (const std::int64_t row : arguments.rows) rows.push_back(shard_row(shard, row));
  return rows;
}

void inspect(const Arguments& arguments) {
  for (const Json& result : describe(arguments)) {
    if (arguments.json) {
      std::cout << result.dump() << "\n";
    } else {
      print_for_people(result);
    }
  }
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("inspect", "Show what a shard, a checkpoint, a run or a model folder holds");
  command->add_option("PATH", arguments->path, "An .hdf5 shard, a checkpoint, a run directory or a Hugging Face folder")
      ->required();
  command->add_option("--row", arguments->rows, "Show these rows of a shard, from 0");
  command->add_flag("--json", arguments->json, "Print JSON, one object a line");
  command->callback([arguments] { inspect(*arguments); });
}

}  // namespace tempo::apps
