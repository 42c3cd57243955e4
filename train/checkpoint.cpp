#include "train/checkpoint.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "data/sha256.h"
#include "model/durable_file.h"
#include "model/safetensors.h"

namespace tempo::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr const char* kHeader = "(header)";  // stands for the header among the names of tensors
constexpr const char* kPrefix = "step-";
constexpr std::size_t kNumberWidth = 8;  // names sort in the order of steps
constexpr std::size_t kHashDigits = 64;

[[noreturn]] void damaged(const fs::path& file, const std::string& reason) {
  C10_THROW_ERROR(ValueError, file.string() + ": " + reason);
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) damaged(path, "is missing or cannot be read");
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) damaged(path, "cannot be read");
  return bytes;
}

/// Hashes of a .safetensors file that is to be written: of its header and of every tensor.
Json hashes_of(const std::string& header, const NamedTensors& tensors) {
  Json hashes = {{kHeader, data::sha256_of(header)}};
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor on_host = tensor.detach().cpu().contiguous();
    data::Sha256 hash;
    hash.add(on_host.const_data_ptr(), on_host.nbytes());
    hashes[name] = hash.digits();
  }
  return hashes;
}

void check_tensors(const fs::path& file, const Json& hashes) {
  const model::SafetensorsReader reader(file);
  if (data::sha256_of(reader.header()) != hashes.value(kHeader, std::string())) damaged(file, "its header is damaged");
  for (const auto& [name, info] : reader.tensors()) {
    if (data::sha256_of(reader.bytes(name)) != hashes.value(name, std::string())) {
      damaged(file, "tensor " + name + " is damaged");
    }
  }
  if (reader.tensors().size() + 1 != hashes.size()) damaged(file, "does not hold the tensors that state.json names");
}

/// Every line of COMPLETE is a hash, two spaces, a name and a line end; each is compared with its file.
void check_files(const fs::path& folder) {
  const fs::path path = folder / model::kCompleteFile;
  std::string text = read_file(path);
  std::vector<std::string> names;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string::npos || end <= kHashDigits + 2 || text.compare(kHashDigits, 2, "  ") != 0) {
      damaged(path, "is damaged");
    }
    const std::string name = text.substr(kHashDigits + 2, end - kHashDigits - 2);
    if (std::any_of(name.begin(), name.end(), [](char c) { return c == '/' || c < ' '; })) damaged(path, "is damaged");
    if (!fs::exists(folder / name)) damaged(path, "is damaged, or " + name + ", which it names, is missing");
    if (data::sha256_of(read_file(folder / name)) != text.substr(0, kHashDigits)) {
      damaged(folder / name, "differs from what COMPLETE says");
    }
    if (std::find(names.begin(), names.end(), name) != names.end()) damaged(path, "is damaged");
    names.push_back(name);
    text.erase(0, end + 1);
  }
  names.insert(names.end(), {model::kCompleteFile, model::kWeightsFile, kOptimizerFile});
  const auto is_named = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (!is_named(model::kStateFile) || !is_named(model::kConfigFile)) damaged(path, "is damaged");
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!is_named(name)) damaged(path, "is damaged, or " + name + " is not of this checkpoint");
  }
}

std::string folder_name(std::int64_t step) {
  std::string number = std::to_string(step);
  number.insert(0, number.size() < kNumberWidth ? kNumberWidth - number.size() : 0, '0');
  return kPrefix + number;
}

/// The step in a checkpoint's name, or -1.
std::int64_t step_in_name(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const std::size_t prefix = std::string(kPrefix).size();
  if (name.size() < prefix + kNumberWidth || name.size() > prefix + 18 || name.compare(0, prefix, kPrefix) != 0)
    return -1;
  if (!std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix), name.end(),
                   [](char c) { return c >= '0' && c <= '9'; })) {
    return -1;
  }
  return std::stoll(name.substr(prefix));
}

Json state_json(const CheckpointContent& content) {
  return {{"format", kFormat},
          {"step", content.state.step},
          {"vocab_multiple", content.model.vocab_multiple},
          {"optimizer_updates", content.state.optimizer_updates},
          {"sequences", content.state.sequences},
          {"tokens", content.state.tokens},
          {"real_tokens", content.state.real_tokens},
          {"examples", content.state.examples},
          {"skipped_steps", content.state.skipped_steps},
          {"skipped_in_a_row", content.state.skipped_in_a_row}};
}

/// Copies a tensor of a checkpoint into one of the run, which must have its shape.
void copy_tensors(const fs::path& file, const NamedTensors& tensors) {
  const model::SafetensorsReader reader(file);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) reader.copy_to(name, tensor);
  TORCH_CHECK_VALUE(reader.tensors().size() == tensors.size(), file.string(), ": holds ", reader.tensors().size(),
                    " tensors, but the run has ", tensors.size());
}

}  // namespace

void write_checkpoint(const fs::path& folder, const CheckpointContent& content) {
  model::DurableFolder target(folder);
  std::string complete;
  const auto add_file = [&](const std::string& name, const std::string& text) {
    model::write_durable_text(target.path() / name, text);
    complete += data::sha256_of(text) + "  " + name + "\n";
  };
  for (const auto& [name, text] : content.tokenizer) add_file(name, text);
  add_file(model::kConfigFile, model::hugging_face_config_text(content.model));
  Json state = state_json(content);
  const auto add_tensors = [&](const char* name, const NamedTensors& tensors) {
    const std::string header = model::write_safetensors(target.path() / name, tensors);
    state["sha256"][name] = hashes_of(header, tensors);
  };
  add_tensors(model::kWeightsFile, content.weights);
  if (!content.optimizer.empty()) add_tensors(kOptimizerFile, content.optimizer);
  add_file(model::kStateFile, state.dump(1) + "\n");
  model::write_durable_text(target.path() / model::kCompleteFile, complete);
  target.commit();
}

TrainState verify_checkpoint(const fs::path& folder) {
  check_files(folder);
  const fs::path path = folder / model::kStateFile;
  try {
    const Json json = Json::parse(read_file(path));
    if (json.at("format") != kFormat) damaged(path, "has a format that this version does not know");
    for (const auto& [name, hashes] : json.at("sha256").items()) check_tensors(folder / name, hashes);
    TrainState state;
    state.step = json.at("step");
    state.optimizer_updates = json.at("optimizer_updates");
    state.sequences = json.at("sequences");
    state.tokens = json.at("tokens");
    state.real_tokens = json.at("real_tokens");
    state.examples = json.at("examples");
    state.skipped_steps = json.value("skipped_steps", std::int64_t{0});  // later than format 1
    state.skipped_in_a_row = json.value("skipped_in_a_row", std::int64_t{0});
    return state;
  } catch (const Json::exception& error) {
    damaged(path, std::string("does not say what it should: ") + error.what());
  }
}

void load_weights_as_saved(const fs::path& folder, model::Model& model) {
  copy_tensors(folder / model::kWeightsFile, model::named_weights(model, model::VocabularyRows::kPadded));
}

void load_optimizer(const fs::path& folder, const TrainState& state, Optimizer& optimizer) {
  TORCH_CHECK_VALUE(fs::exists(folder / kOptimizerFile), folder.string(), ": holds weights only, no ", kOptimizerFile);
  copy_tensors(folder / kOptimizerFile, optimizer.state());
  optimizer.set_num_updates(state.optimizer_updates);
}

std::vector<fs::path> list_checkpoints(const fs::path& checkpoints) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints, error), end; entry != end; entry.increment(error)) {
    if (step_in_name(entry->path()) >= 0) found.push_back(entry->path());
  }
  // Not read is not the same as not there: a run that could go on must not be taken for one that cannot.
  if (error != std::errc::no_such_file_or_directory) model::throw_if(error, checkpoints, "cannot be read");
  std::sort(found.begin(), found.end(),
            [](const fs::path& one, const fs::path& other) { return step_in_name(one) > step_in_name(other); });
  return found;
}

std::optional<IntactCheckpoint> newest_intact(
    const fs::path& checkpoints, const std::function<void(const fs::path&, const std::string&)>& on_damaged) {
  for (const fs::path& folder : list_checkpoints(checkpoints)) {
    try {
      const TrainState state = verify_checkpoint(folder);
      if (state.step == step_in_name(folder)) return IntactCheckpoint{folder, state};
      on_damaged(folder, "its name is not that of its step, " + std::to_string(state.step));
    } catch (const c10::ValueError& error) {
      on_damaged(folder, error.what_without_backtrace());
    }
  }
  return std::nullopt;
}

CheckpointSaver::CheckpointSaver(fs::path checkpoints, std::int64_t keep, const model::Model& model,
                                 const Optimizer& optimizer, model::TokenizerFiles tokenizer,
                                 std::function<void()> flush_records)
    : checkpoints_(std::move(checkpoints)),
      keep_(keep),
      model_(model),
      optimizer_(optimizer),
      flush_records_(std::move(flush_records)) {
  content_.model = model.config();
  content_.tokenizer = std::move(tokenizer);
  const auto add_buffers = [this](const NamedTensors& tensors, NamedTensors& copies) {
    for (const auto& [name, tensor] : tensors) {
      buffers_.emplace_back(static_cast<std::size_t>(tensor.numel()));
      copies.emplace_back(name, at::from_blob(buffers_.back().data(), tensor.sizes(), at::kFloat));
    }
  };
  add_buffers(model::named_weights(model, model::VocabularyRows::kPadded), content_.weights);
  add_buffers(optimizer.state(), content_.optimizer);
  model::remove_leftovers(checkpoints_);
}

CheckpointSaver::~CheckpointSaver() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointSaver::save(TrainState state) {
  finish();
  state.optimizer_updates = optimizer_.num_updates();
  content_.state = state;
  const at::NoGradGuard no_grad;
  const auto copy = [](const NamedTensors& from, NamedTensors& to) {
    for (std::size_t index = 0; index < from.size(); ++index) to[index].second.copy_(from[index].second);
  };
  copy(model::named_weights(model_, model::VocabularyRows::kPadded), content_.weights);
  copy(optimizer_.state(), content_.optimizer);
  thread_ = std::thread([this, folder = checkpoints_ / folder_name(state.step)] {
    try {
      write(folder);
    } catch (...) {
      failure_ = std::current_exception();
      has_failed_ = true;
    }
  });
}

void CheckpointSaver::write(const fs::path& folder) {
  const auto start = std::chrono::steady_clock::now();
  flush_records_();
  std::error_code error;
  // A damaged one of the same step, or one of a run that went on from an older checkpoint.
  fs::remove_all(folder, error);
  model::throw_if(error, folder, "cannot be removed");
  write_checkpoint(folder, content_);
  spdlog::info("saved {} in {:.1f} s", folder.filename().string(),
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (keep_ == 0) return;
  std::vector<fs::path> all = list_checkpoints(checkpoints_);
  // Later ones are damaged: the run came back from beyond. They go when it gets there again.
  const std::int64_t present = content_.state.step;
  all.erase(all.begin(),
            std::find_if(all.begin(), all.end(), [&](const auto& one) { return step_in_name(one) <= present; }));
  for (std::size_t index = static_cast<std::size_t>(keep_); index < all.size(); ++index) {
    // COMPLETE goes first: what a kill leaves of it is then no checkpoint.
    fs::remove(all[index] / model::kCompleteFile, error);
    if (!error) fs::remove_all(all[index], error);
    model::throw_if(error, all[index], "cannot be removed");
  }
}

void CheckpointSaver::finish() {
  if (thread_.joinable()) thread_.join();
  has_failed_ = false;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace tempo::train
