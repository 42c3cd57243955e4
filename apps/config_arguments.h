// What every command that reads a configuration takes: the file, overrides of its keys, and --dry-run.
//
// Not for: flags of one command. Thread rule: a value.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tempo::apps {

struct ConfigArguments {
  std::string config;
  std::vector<std::string> overrides;
  bool dry_run = false;

  /// Adds them to `command`. `example` is an override, `checked` what a dry run looks at; `keys` is printed below the help.
  void add_to(CLI::App& command, const std::string& example, const std::string& checked, const std::string& keys) {
    command.add_option("CONFIG", config, "YAML file; its paths are relative to it")->required();
    command.add_option("KEY=VALUE", overrides,
                       "Overrides of single keys, as " + example + "; paths are relative to here");
    command.add_flag("--dry-run", dry_run, "Check " + checked + ", and stop");
    command.footer("Keys of the configuration:\n\n" + keys);
  }
};

}  // namespace tempo::apps
