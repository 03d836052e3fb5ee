// The options that commands share, as the command line gives them, and what they mean for the runtime.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plumbline/pipelines/engine.h"
#include "plumbline/pipelines/runtime.h"

namespace plumbline::cli {

enum class Format : uint8_t { kText, kJson, kJsonl };

struct RunOptions {
  std::string model;
  std::string compute = "bf16";
  int threads = 0;  // 0: one per processor
  int tp = 1, dp = 1, pp = 1, ep = 1, cp = 1;
  std::string launcher = "local";
  std::string isa = "auto";
  std::string chunk_size = "512";
  int64_t batch_size = 16;
  int64_t kv_page_size = 64;
  bool no_prefix_cache = false;
  std::string memory_limit;  // empty: none
  std::string format = "text";
  std::string output;
  bool quiet = false;
};

// What score and generate run and show alike.
struct PromptOptions : RunOptions {
  std::string prompt, tokens;
  const CLI::Option* prompt_option = nullptr;
  bool no_bos = false;
  int32_t top_logprobs = 0;
  bool max_logit = false;

  bool has_prompt() const { return prompt_option->count() > 0; }  // also an empty one
};

void AddModelOption(CLI::App& command, RunOptions& options);
void AddRunOptions(CLI::App& command, RunOptions& options);     // compute, threads, ranks, isa
void AddEngineOptions(CLI::App& command, RunOptions& options);  // chunk, batch and page size, prefixes
void AddOutputOptions(CLI::App& command, RunOptions& options);  // format, output, quiet
void AddPromptOptions(CLI::App& command, PromptOptions& options);

Result<RuntimeOptions> ToRuntimeOptions(const RunOptions& options);
Result<EngineOptions> ToEngineOptions(const RunOptions& options);
Result<Format> ToFormat(const RunOptions& options);

// Loads the model with a progress bar on standard error (where that is a terminal and not --quiet).
Result<std::unique_ptr<Runtime>> LoadRuntime(const RunOptions& options);

// "1,2,3" as ids or indices of 0 or more; `what` names the option in errors.
Result<std::vector<int32_t>> ParseIdList(const std::string& what, const std::string& text);

// A whole file, pipes included, of at least one byte; an error names the path.
Result<std::string> ReadTextFile(const std::string& path);

}  // namespace plumbline::cli
