// tempo: subcommands, and what exceptions mean to whoever called.
//
// Exit codes: 0 done, 1 failure (compare: the runs differ), 2 the user's mistake, 3 out of memory.
#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <iostream>
#include <new>

#include "apps/commands.h"
#include "tempo_version.h"
#include "train/memory_tracker.h"

namespace {

constexpr int kFailure = 1;
constexpr int kUserMistake = 2;
constexpr int kOutOfMemory = 3;

std::string version_text() {
  return fmt::format("tempo {} ({})\nLibTorch {}\nCUDA {} (architectures {})\nCPU {}\n", tempo::version::kVersion,
                     tempo::version::kGitRevision, tempo::version::kTorchVersion, tempo::version::kCudaVersion,
                     tempo::version::kCudaArchitectures, at::get_cpu_capability());
}

int run(int argc, char** argv) {
  CLI::App app("Pre-trains BERT from a YAML configuration.", "tempo");
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text);
  tempo::apps::add_prepare(app);
  tempo::apps::add_train(app);
  tempo::apps::add_bench(app);
  tempo::apps::add_convert(app);
  tempo::apps::add_inspect(app);
  tempo::apps::add_compare(app);
  tempo::apps::add_ctl(app);
  // CLI11 would only say that a subcommand is required.
  if (argc > 1 && argv[1][0] != '-') {
    std::string names;
    bool known = false;
    for (const CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
      names += (names.empty() ? "" : ", ") + command->get_name();
      known = known || command->get_name() == argv[1];
    }
    TORCH_CHECK_VALUE(known, "unknown command '", argv[1], "'; there are ", names);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();  // a command's answer, which it has printed
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUserMistake;
  }
  return 0;
}

int report(const std::string& message, int code) {
  spdlog::error(message);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  // Logs go to stderr; stdout is for results.
  spdlog::set_default_logger(spdlog::stderr_color_mt("tempo"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S %^%l%$ %v");
  tempo::train::install_memory_tracker();
  try {
    return run(argc, argv);
  } catch (const c10::ValueError& error) {
    return report(error.what_without_backtrace(), kUserMistake);
  } catch (const c10::OutOfMemoryError& error) {
    return report(error.what_without_backtrace(), kOutOfMemory);
  } catch (const c10::Error& error) {
    return report(error.what_without_backtrace(), kFailure);
  } catch (const std::bad_alloc&) {
    return report("out of memory", kOutOfMemory);
  } catch (const std::exception& error) {
    return report(error.what(), kFailure);
  }
}
