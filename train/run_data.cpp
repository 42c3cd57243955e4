#include "train/run_data.h"

#include <c10/util/Exception.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <set>

#include "train/stop_request.h"

namespace tempo::train {
namespace {

namespace fs = std::filesystem;

using Paths = std::vector<fs::path>;

constexpr auto kCheckReport = std::chrono::seconds(10);  // how often a long check of the shards says where it is

/// The file itself, whatever links lead to it.
fs::path real_path(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? path : real;  // a file that is not there is refused when it is opened
}

void check_held_out(const Paths& training, const Paths& validation) {
  std::set<fs::path> trained_on;
  for (const fs::path& shard : training) trained_on.insert(real_path(shard));
  for (const fs::path& shard : validation) {
    TORCH_CHECK_VALUE(trained_on.count(real_path(shard)) == 0, "data.validation: ", shard.string(),
                      " is one of data.shards too; what is held out must not be trained on");
  }
}

/// Reads two headers, so that nobody waits for the check of all rows to hear of it.
void check_lengths(const Paths& training, const Paths& validation, std::int64_t configured_length) {
  const std::int64_t length =
      configured_length > 0 ? configured_length : data::read_shard_shape(training.front()).sequence_length;
  const std::int64_t held_out = data::read_shard_shape(validation.front()).sequence_length;
  TORCH_CHECK_VALUE(held_out == length, "data.validation: ", validation.front().string(), ": has sequence length ",
                    held_out, ", but the sequences of training have ", length);
}

std::unique_ptr<data::Dataset> open(const RunConfig& config, Paths shards, data::DatasetOptions options) {
  options.shards = std::move(shards);
  options.limits = {config.model.vocab_size, config.model.type_vocab_size};
  options.on_checked = [last = std::chrono::steady_clock::now()](std::size_t done, std::size_t all) mutable {
    const auto now = std::chrono::steady_clock::now();
    if (now - last >= kCheckReport && done < all) {
      spdlog::info("checking the shards: {} of {}", done, all);
      last = now;
    }
    return StopRequest::requested() == nullptr;
  };
  return std::make_unique<data::Dataset>(std::move(options));
}

/// The vocabulary that tempo prepare leaves beside its shards; an empty path where there is none.
fs::path tokenizer_beside(const fs::path& shard) {
  std::error_code ignored;
  const fs::path folder = shard.parent_path();
  return fs::exists(folder / "vocab.txt", ignored) ? folder : fs::path();
}

}  // namespace

RunData open_data(const RunConfig& config) {
  const Paths training = expand_shards("data.shards", config.data.shards);
  const Paths validation = expand_shards("data.validation", config.data.validation);
  if (!validation.empty()) {
    check_held_out(training, validation);
    check_lengths(training, validation, config.data.sequence_length);
  }
  data::DatasetOptions options;
  options.sequence_length = config.data.sequence_length;
  options.max_predictions = config.data.max_predictions;
  options.shuffle = config.data.shuffle;
  options.seed = config.train.seed;
  RunData data;
  data.tokenizer_folder = tokenizer_beside(training.front());
  data.training = open(config, training, std::move(options));
  TORCH_CHECK_VALUE(data.training->sequence_length() <= config.model.max_positions, "the shards have sequences of ",
                    data.training->sequence_length(), " tokens, but model.max_positions is ",
                    config.model.max_positions);
  if (!validation.empty()) {
    data::DatasetOptions in_order;
    in_order.shuffle = false;
    data.validation = open(config, validation, std::move(in_order));
    const std::string& held_out = data.validation->tokenizer_sha256();
    const std::string& trained_on = data.training->tokenizer_sha256();
    TORCH_CHECK_VALUE(held_out.empty() || trained_on.empty() || held_out == trained_on,
                      "data.validation: ", validation.front().string(), ": was made with another vocabulary than ",
                      training.front().string());
  }
  return data;
}

}  // namespace tempo::train
