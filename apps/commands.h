// One function per subcommand: adds it to the command line, with its flags and its action.
//
// Actions throw; main turns exceptions into exit codes, a CLI::RuntimeError silently into its own.
// stdout carries results, stderr logs.
#pragma once

#include <CLI/CLI.hpp>

namespace tempo::apps {

void add_prepare(CLI::App& app);
void add_train(CLI::App& app);
void add_convert(CLI::App& app);
void add_inspect(CLI::App& app);
void add_compare(CLI::App& app);
void add_ctl(CLI::App& app);
void add_bench(CLI::App& app);

}  // namespace tempo::apps
