#include <spdlog/spdlog.h>

#include <memory>
#include <nlohmann/json.hpp>

#include <fstream>

#include "apps/commands.h"
#include "model/hf_weights.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace tempo::apps {
namespace {

struct Arguments {
  std::string from;
  std::string to;
  std::optional<std::int64_t> vocab_multiple;
  std::uint64_t seed = 42;
};

/// What a checkpoint's state.json says about the model.
std::int64_t checkpoint_vocab_multiple(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / model::kStateFile;
  std::ifstream stream(file);
  const nlohmann::json state = nlohmann::json::parse(stream, nullptr, false);
  const auto multiple = state.is_object() ? state.find("vocab_multiple") : state.end();
  TORCH_CHECK_VALUE(state.is_object() && multiple != state.end() && multiple->is_number_integer() &&
                        multiple->get<std::int64_t>() > 0,
                    file.string(), ": vocab_multiple is missing or no number above 0");
  return multiple->get<std::int64_t>();
}

void convert(const Arguments& arguments) {
  const std::filesystem::path from = arguments.from;
  const bool from_checkpoint = model::is_checkpoint(from);
  TORCH_CHECK_VALUE(!from_checkpoint || !arguments.vocab_multiple,
                    "--vocab-multiple has no effect here: a Hugging Face folder holds the real vocabulary");
  model::ModelConfig config = model::read_hugging_face_config(from);
  config.vocab_multiple = from_checkpoint ? checkpoint_vocab_multiple(from) : arguments.vocab_multiple.value_or(1);
  const std::unique_ptr<model::Model> model = model::make_model(config, c10::DeviceType::CPU);
  train::log_load_report(model::load_weights(*model, from, arguments.seed), from);
  if (from_checkpoint) {
    model::save_hugging_face(*model, arguments.to, model::read_tokenizer_files(from));
  } else {
    train::write_checkpoint(arguments.to, {config,
                                           {},
                                           model::named_weights(*model, model::VocabularyRows::kPadded),
                                           {},
                                           model::read_tokenizer_files(from)});
  }
  spdlog::info("wrote {} with {} parameters to {}", from_checkpoint ? "a Hugging Face folder" : "a checkpoint",
               model::count_parameters(config), arguments.to);
}

}  // namespace

void add_convert(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("convert", "Convert weights between Hugging Face folders and checkpoints");
  command
      ->add_option("--from", arguments->from,
                   "Hugging Face folder (becomes a checkpoint) or checkpoint (becomes a Hugging Face folder)")
      ->required();
  command->add_option("--to", arguments->to, "Folder to write; must not exist")->required();
  command->add_option("--vocab-multiple", arguments->vocab_multiple,
                      "Pad the checkpoint's vocabulary to a multiple of this");
  command->add_option("--seed", arguments->seed, "Seed of heads that the folder does not have")->capture_default_str();
  command->callback([arguments] { convert(*arguments); });
}

}  // namespace tempo::apps
