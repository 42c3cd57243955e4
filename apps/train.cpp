#include <iostream>
#include <memory>

#include "apps/commands.h"
#include "train/run_config.h"
#include "train/trainer.h"

namespace tempo::apps {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  bool dry_run = false;
};

}  // namespace

void add_train(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("train", "Pre-train a model from a YAML configuration");
  command->add_option("CONFIG", arguments->config, "YAML file; its paths are relative to it")->required();
  command->add_option("KEY=VALUE", arguments->overrides,
                      "Overrides of single keys, as train.steps=100; paths are relative to here");
  command->add_flag("--dry-run", arguments->dry_run, "Check the configuration, the data and the weights, and stop");
  command->footer("Keys of the configuration:\n\n" + train::describe_keys());
  command->callback([arguments] {
    const train::RunConfig config = train::load_run_config(arguments->config, arguments->overrides);
    if (arguments->dry_run) {
      std::cout << train::check_run(config);
    } else {
      train::train(config);
    }
  });
}

}  // namespace tempo::apps
