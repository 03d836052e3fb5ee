// One subcommand a file. Each adds itself to the program and returns what to run if it was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <memory>

#include "plumbline/base/status.h"
#include "plumbline/cli/options.h"

namespace plumbline::cli {

struct Command {
  std::function<Status()> run;
  // Of a command that runs a model, perhaps on several ranks; else null.
  std::shared_ptr<const RunOptions> options;
};

// `cancelled` becomes true on Ctrl-C.
Command AddScore(CLI::App& app, const std::atomic<bool>& cancelled);
Command AddGenerate(CLI::App& app, const std::atomic<bool>& cancelled);
Command AddInfo(CLI::App& app);
Command AddTokenize(CLI::App& app);
Command AddVerify(CLI::App& app, const std::atomic<bool>& cancelled);
Command AddBench(CLI::App& app, const std::atomic<bool>& cancelled);

}  // namespace plumbline::cli
