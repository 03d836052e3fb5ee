// One subcommand a file. Each adds itself to the program and returns what to run if it was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>

#include "plumbline/base/status.h"

namespace plumbline::cli {

using Command = std::function<Status()>;

// `cancelled` becomes true on Ctrl-C.
Command AddScore(CLI::App& app, const std::atomic<bool>& cancelled);
Command AddGenerate(CLI::App& app, const std::atomic<bool>& cancelled);
Command AddInfo(CLI::App& app);
Command AddTokenize(CLI::App& app);
Command AddVerify(CLI::App& app, const std::atomic<bool>& cancelled);
Command AddBench(CLI::App& app, const std::atomic<bool>& cancelled);

}  // namespace plumbline::cli
