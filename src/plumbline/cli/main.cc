// The plumbline program: parses the command line, runs one subcommand, turns a Status into one line and an
// exit code.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "plumbline/cli/commands.h"
#include "plumbline/cli/mpi_launch.h"
#include "plumbline/pipelines/runtime.h"
#include "plumbline/text/utf8.h"

namespace {

std::atomic<bool> g_cancelled{false};  // the one thing a signal handler may touch

void OnInterrupt(int signal) {
  g_cancelled.store(true, std::memory_order_relaxed);
  std::signal(signal, SIG_DFL);  // a second Ctrl-C ends the process at once
}

constexpr int kFailed = 1;
constexpr int kInvalid = 2;

// One line of well-formed UTF-8 without control characters, whatever a message quotes of a file.
int Report(const std::string& message, int code) {
  std::string line;
  plumbline::AppendLossy(message, line);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  fmt::print(stderr, "plumbline: {}\n", line);
  return code;
}

int CodeOf(const plumbline::Error& error) {
  return error.code == plumbline::ErrorCode::kInvalidInput ? kInvalid : kFailed;
}

int ExitCode(const plumbline::Result<int>& code) {
  if (code) return *code;
  return Report(code.error().message, CodeOf(code.error()));
}

plumbline::Result<int> RunHere(const plumbline::cli::Command& command) {
  RETURN_IF_ERROR(command.run());
  return 0;
}

// The exit code of a command that ran, here or as ranks.
plumbline::Result<int> Run(const plumbline::cli::Command& command, char** argv) {
  using namespace plumbline::cli;  // NOLINT(google-build-using-namespace)
  if (command.options == nullptr || command.options->launcher != "mpi") return RunHere(command);
  if (!StartedByMpirun()) return RunUnderMpirun(*command.options, argv);
  return RunInChild([&command] {
    if (MpirunRank() == 0) return ExitCode(RunHere(command));
    // What happens to it, rank 0 hears and reports.
    const plumbline::Status served = ServeMpiRank(*command.options);
    return served ? 0 : CodeOf(served.error());
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, OnInterrupt);
  std::signal(SIGTERM, OnInterrupt);
  std::signal(SIGPIPE, SIG_IGN);

  CLI::App app("An exact, observable LLM decoder runtime.", "plumbline");
  app.set_version_flag(
      "--version", fmt::format("plumbline {} (numerics {})", PLUMBLINE_VERSION, plumbline::kNumericsVersion));
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, plumbline::cli::Command>> commands;
  const auto add = [&](plumbline::cli::Command command) {
    commands.emplace_back(app.get_subcommands({}).back(), std::move(command));
  };
  add(plumbline::cli::AddScore(app, g_cancelled));
  add(plumbline::cli::AddGenerate(app, g_cancelled));
  add(plumbline::cli::AddInfo(app));
  add(plumbline::cli::AddTokenize(app));
  add(plumbline::cli::AddVerify(app, g_cancelled));
  add(plumbline::cli::AddBench(app, g_cancelled));

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return Report(fmt::format("command line: {}", error.what()), kInvalid);
  }
  for (const auto& [subcommand, command] : commands) {
    if (!subcommand->parsed()) continue;
    return ExitCode(Run(command, argv));
  }
  return kInvalid;
}
