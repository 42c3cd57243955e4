#include <iostream>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "train/run_control.h"

namespace tempo::apps {

void add_ctl(CLI::App& app) {
  struct Arguments {
    std::string run_dir;
    std::string request;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("ctl", "Ask a tempo train that is at work to save or to end");
  command->add_option("RUN_DIR", arguments->run_dir, "Folder of the run")->required();
  command
      ->add_option("REQUEST", arguments->request,
                   "save: write a checkpoint after the step at hand; stop: do so and end, as SIGTERM does")
      ->required()
      ->check(CLI::IsMember({"save", "stop"}));
  command->callback([arguments] {
    const bool is_stop = arguments->request == "stop";
    train::ask(arguments->run_dir, is_stop ? train::Request::kStop : train::Request::kSave);
    std::cout << arguments->run_dir << " is asked to " << (is_stop ? "save and end" : "save")
              << " after the step at hand\n";
  });
}

}  // namespace tempo::apps
