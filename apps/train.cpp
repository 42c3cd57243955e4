#include <c10/util/Exception.h>

#include <iostream>
#include <memory>

#include "apps/commands.h"
#include "apps/config_arguments.h"
#include "apps/program_version.h"
#include "train/run_config.h"
#include "train/stop_request.h"
#include "train/trainer.h"

namespace tempo::apps {
namespace {

/// With --resume the first word is an override like the others: the run has its configuration.
void resume(ConfigArguments arguments, const std::string& run_dir) {
  TORCH_CHECK_VALUE(!arguments.dry_run, "--dry-run does not go with --resume");
  if (!arguments.config.empty()) arguments.overrides.insert(arguments.overrides.begin(), arguments.config);
  std::vector<train::ConfigChange> changes;
  const train::RunConfig config = train::load_resumed_config(run_dir, arguments.overrides, changes);
  train::resume(config, changes, program_version());
}

}  // namespace

void add_train(CLI::App& app) {
  auto arguments = std::make_shared<ConfigArguments>();
  auto run_dir = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("train", "Pre-train a model from a YAML configuration");
  arguments->add_to(*command, "train.steps=100", "the configuration, the data and the weights", train::describe_keys());
  command->get_option("CONFIG")->required(false);
  command->add_option("--resume", *run_dir, "Go on with the run in this folder, from its newest checkpoint");
  command->callback([arguments, run_dir] {
    if (!run_dir->empty()) {
      const train::StopRequest signals;
      return resume(*arguments, *run_dir);
    }
    TORCH_CHECK_VALUE(!arguments->config.empty(),
                      "CONFIG is missing: a YAML file, or --resume with the folder of a run");
    if (arguments->dry_run) {
      std::cout << train::check_run(train::load_run_config(arguments->config, arguments->overrides));
      return;
    }
    const train::StopRequest signals;
    train::train(train::load_run_config(arguments->config, arguments->overrides), program_version());
  });
}

}  // namespace tempo::apps
