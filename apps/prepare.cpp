#include <iostream>
#include <memory>

#include "apps/commands.h"
#include "apps/config_arguments.h"
#include "train/preparer.h"
#include "train/run_config.h"
#include "train/stop_request.h"

namespace tempo::apps {

void add_prepare(CLI::App& app) {
  auto arguments = std::make_shared<ConfigArguments>();
  CLI::App* command = app.add_subcommand("prepare", "Turn text into shards to train on");
  arguments->add_to(*command, "prepare.validation=0.05", "the configuration, the vocabulary and the folder",
                    train::describe_keys({"data", "prepare"}));
  command->callback([arguments] {
    const auto config = [&] { return train::load_prepare_config(arguments->config, arguments->overrides); };
    if (arguments->dry_run) {
      std::cout << train::check_preparation(config());
      return;
    }
    const train::StopRequest signals;
    std::cout << train::prepare_shards(config());
  });
}

}  // namespace tempo::apps
