#include <iostream>
#include <memory>

#include "apps/commands.h"
#include "train/preparer.h"
#include "train/run_config.h"

namespace tempo::apps {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  bool dry_run = false;
};

}  // namespace

void add_prepare(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("prepare", "Turn text into shards to train on");
  command->add_option("CONFIG", arguments->config, "YAML file; its paths are relative to it")->required();
  command->add_option("KEY=VALUE", arguments->overrides,
                      "Overrides of single keys, as prepare.validation=0.05; paths are relative to here");
  command->add_flag("--dry-run", arguments->dry_run,
                    "Check the configuration, the vocabulary and the folder, and stop");
  command->footer("Keys of the configuration that it reads:\n\n" + train::describe_keys({"data", "prepare"}));
  command->callback([arguments] {
    const train::RunConfig config = train::load_prepare_config(arguments->config, arguments->overrides);
    std::cout << (arguments->dry_run ? train::check_preparation(config) : train::prepare_shards(config));
  });
}

}  // namespace tempo::apps
