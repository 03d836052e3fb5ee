#include "plumbline/cli/options.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <thread>

#include "plumbline/cli/byte_size.h"
#include "plumbline/cli/progress.h"
#include "plumbline/kernels/limits/isa_choice.h"

namespace plumbline::cli {
namespace {

constexpr int kMaxThreads = 1024;

Result<int64_t> MemoryLimit(const RunOptions& options) {
  if (options.memory_limit.empty()) return 0;
  return ParseByteSize("--memory-limit", options.memory_limit);
}

}  // namespace

void AddModelOption(CLI::App& command, RunOptions& options) {
  command.add_option("-m,--model", options.model, "a .gguf file or a Hugging Face folder")->required();
}

void AddRunOptions(CLI::App& command, RunOptions& options) {
  command.add_option("--compute", options.compute, "arithmetic of matmuls: bf16, f32 or int8")
      ->capture_default_str();
  command
      .add_option("--threads", options.threads, "threads of each rank (0: an even share of the processors)")
      ->capture_default_str();
  command.add_option("--isa", options.isa, "auto, avx2, avx512 or avx512_bf16")->capture_default_str();
  command.add_option("--tp", options.tp, "tensor parallel ranks")->capture_default_str();
  command.add_option("--dp", options.dp, "data parallel ranks")->capture_default_str();
  command.add_option("--pp", options.pp, "pipeline parallel ranks")->capture_default_str();
  command.add_option("--ep", options.ep, "expert parallel ranks: 1, or --tp x --dp")->capture_default_str();
  command.add_option("--cp", options.cp, "context parallel ranks")->capture_default_str();
  command
      .add_option("--launcher", options.launcher,
                  "ranks are threads (local) or processes that mpirun started (mpi)")
      ->capture_default_str();
}

void AddEngineOptions(CLI::App& command, RunOptions& options) {
  command.add_option("--chunk-size", options.chunk_size, "prompt tokens a step, or 'all'")
      ->capture_default_str();
  command.add_option("--batch-size", options.batch_size, "sequences in flight")->capture_default_str();
  command.add_option("--kv-page-size", options.kv_page_size, "tokens a KV page, a multiple of 64")
      ->capture_default_str();
  command.add_flag("--no-prefix-cache", options.no_prefix_cache,
                   "run every request's tokens, also where requests begin alike");
  command.add_option("--memory-limit", options.memory_limit,
                     "what the process may hold, 600MiB; requests wait for their share of it");
}

void AddOutputOptions(CLI::App& command, RunOptions& options) {
  command.add_option("--format", options.format, "text, json or jsonl")->capture_default_str();
  command.add_option("--output", options.output, "a file for the results instead of standard output");
  command.add_flag("--quiet", options.quiet, "no progress on standard error");
}

void AddPromptOptions(CLI::App& command, PromptOptions& options) {
  options.prompt_option = command.add_option("-p,--prompt", options.prompt, "the text");
  command.add_option("--tokens", options.tokens, "token ids instead of a text, 1,2,3");
  command.add_flag("--no-bos", options.no_bos, "no special tokens around the text");
  command.add_option("--top-logprobs", options.top_logprobs, "alternatives a token")->capture_default_str();
  command.add_flag("--max-logit", options.max_logit,
                   "the maximum attention logit of every layer and query head");
}

Result<RuntimeOptions> ToRuntimeOptions(const RunOptions& options) {
  RuntimeOptions out;
  const std::optional<Compute> compute = ParseCompute(options.compute);
  if (!compute) return InvalidInput("--compute: got '{}', want bf16, f32 or int8", options.compute);
  out.compute = *compute;
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return InvalidInput("--threads: got {}, want 0 to {}", options.threads, kMaxThreads);
  }
  ASSIGN_OR_RETURN(out.isa, options.isa == "auto" ? FastestIsa() : ParseIsa(options.isa));
  ASSIGN_OR_RETURN(out.memory_limit, MemoryLimit(options));
  out.degrees = {.tp = options.tp, .dp = options.dp, .pp = options.pp, .cp = options.cp, .ep = options.ep};
  RETURN_IF_ERROR(CheckDegreeSizes(out.degrees));
  if (options.launcher != "local" && options.launcher != "mpi") {
    return InvalidInput("--launcher: got '{}', want local or mpi", options.launcher);
  }
  out.launcher = options.launcher == "mpi" ? Launcher::kMpi : Launcher::kLocal;
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  out.threads = options.threads > 0 ? options.threads : std::max(1, processors / out.degrees.Ranks());
  return out;
}

Result<EngineOptions> ToEngineOptions(const RunOptions& options) {
  EngineOptions out{.batch_size = options.batch_size,
                    .page_size = options.kv_page_size,
                    .prefix_cache = !options.no_prefix_cache};
  ASSIGN_OR_RETURN(out.memory_limit, MemoryLimit(options));
  out.chunk_size = 0;
  if (options.chunk_size != "all") {
    const char* end = options.chunk_size.data() + options.chunk_size.size();
    const auto [parsed, error] = std::from_chars(options.chunk_size.data(), end, out.chunk_size);
    if (error != std::errc() || parsed != end || out.chunk_size < 0) {
      return InvalidInput("--chunk-size: got '{}', want a number of tokens or 'all'", options.chunk_size);
    }
  }
  return out;
}

Result<Format> ToFormat(const RunOptions& options) {
  if (options.format == "text") return Format::kText;
  if (options.format == "json") return Format::kJson;
  if (options.format == "jsonl") return Format::kJsonl;
  return InvalidInput("--format: got '{}', want text, json or jsonl", options.format);
}

Result<std::unique_ptr<Runtime>> LoadRuntime(const RunOptions& options) {
  ASSIGN_OR_RETURN(const RuntimeOptions runtime_options, ToRuntimeOptions(options));
  Progress progress("loading", options.quiet);
  return Runtime::Load(options.model, runtime_options,
                       [&](int64_t done, int64_t total) { progress.Update(done, total, "bytes"); });
}

Result<std::vector<int32_t>> ParseIdList(const std::string& what, const std::string& text) {
  std::vector<int32_t> ids;
  const char* next = text.data();
  const char* const end = next + text.size();
  while (true) {
    int32_t id = 0;
    const auto [parsed, error] = std::from_chars(next, end, id);
    if (error != std::errc() || id < 0 || (parsed != end && *parsed != ',')) {
      return InvalidInput("{}: got '{}', want numbers of 0 or more separated by commas", what, text);
    }
    ids.push_back(id);
    if (parsed == end) return ids;
    next = parsed + 1;
  }
}

Result<std::string> ReadTextFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr)
    return InvalidInput("file: got {}, want a readable file ({})", std::strerror(errno), path);
  std::string text;
  char block[1 << 16];
  while (const size_t bytes = std::fread(block, 1, sizeof block, file.get())) text.append(block, bytes);
  if (std::ferror(file.get())) {
    return InvalidInput("file: got {}, want a readable file ({})", std::strerror(errno), path);
  }
  if (text.empty()) return InvalidInput("file: got 0 bytes, want a text that is not empty ({})", path);
  return text;
}

}  // namespace plumbline::cli
