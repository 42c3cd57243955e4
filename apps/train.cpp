#include <iostream>
#include <memory>

#include "apps/commands.h"
#include "apps/config_arguments.h"
#include "train/run_config.h"
#include "train/trainer.h"

namespace tempo::apps {

void add_train(CLI::App& app) {
  auto arguments = std::make_shared<ConfigArguments>();
  CLI::App* command = app.add_subcommand("train", "Pre-train a model from a YAML configuration");
  arguments->add_to(*command, "train.steps=100", "the configuration, the data and the weights", train::describe_keys());
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
