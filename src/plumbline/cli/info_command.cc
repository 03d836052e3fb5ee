#include <fmt/format.h>

#include "plumbline/base/memory.h"
#include "plumbline/cli/commands.h"
#include "plumbline/cli/json_writer.h"
#include "plumbline/cli/options.h"
#include "plumbline/cli/output.h"
#include "plumbline/models/architectures.h"
#include "plumbline/models/load_decoder.h"
#include "plumbline/pipelines/checkpoint_text.h"

namespace plumbline::cli {
namespace {

struct Line {
  std::string key, value, unit;  // `value` is a JSON number or a plain string
  bool number = true;
};

Line Number(std::string key, int64_t value, std::string unit = "") {
  return {std::move(key), std::to_string(value), std::move(unit)};
}
Line Text(std::string key, std::string value) { return {std::move(key), std::move(value), "", false}; }

std::string MostCommonDType(const Checkpoint& checkpoint) {
  std::map<std::string_view, int64_t> bytes;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    bytes[Info(tensor.dtype).name] += ByteSize(tensor.dtype, tensor.Elements());
  }
  std::string best;
  int64_t most = -1;
  for (const auto& [name, count] : bytes) {
    if (count > most) best = name;
    most = std::max(most, count);
  }
  return best;
}

Result<std::vector<Line>> Describe(const Checkpoint& checkpoint, Compute compute, const EngineOptions& engine,
                                   int threads) {
  const ModelSource source(checkpoint);
  ASSIGN_OR_RETURN(const DecoderConfig c, ReadDecoderConfig(source));
  ASSIGN_OR_RETURN(const int64_t packed, PackedDecoderBytes(checkpoint, compute));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(checkpoint, c.vocab));
  ASSIGN_OR_RETURN(const std::optional<std::string> chat_template, LoadChatTemplate(checkpoint));
  int64_t parameters = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) parameters += tensor.Elements();
  const KvLayout kv{.layers = c.layers,
                    .kv_heads = c.kv_heads,
                    .head_dim = c.head_dim,
                    .page_size = engine.page_size,
                    .compute = WithoutIntegers(compute)};
  const int64_t rows =
      Engine::StepRows(c, engine, c.max_positions, threads, /*draft_rows=*/0) + engine.batch_size;
  std::vector<Line> lines{
      Text("path", checkpoint.path()),
      Text("format",
           checkpoint.is_gguf() ? fmt::format("gguf v{}", checkpoint.gguf().version()) : "safetensors"),
      Text("architecture", c.architecture),
      Text("weights", MostCommonDType(checkpoint)),
      Number("parameters", parameters),
      Number("layers", c.layers),
      Number("hidden", c.hidden),
      Number("intermediate", c.intermediate),
      Number("heads", c.heads),
      Number("kv_heads", c.kv_heads),
      Number("head_dim", c.head_dim),
      Number("vocab", c.vocab),
      Number("context", c.max_positions, "tokens"),
      Text("head", c.tied_head ? "tied" : "untied"),
      Text("tokenizer", tokenizer == nullptr ? "none" : fmt::format("{} tokens", tokenizer->vocab_size())),
      Text("chat_template", chat_template ? fmt::format("{} characters", chat_template->size()) : "none"),
      Text("compute", std::string(Name(compute))),
      Number("file_bytes", checkpoint.file_bytes(), "bytes"),
      Number("packed_weight_bytes", packed, "bytes"),
      Number("kv_bytes_per_page", kv.PageBytes(), fmt::format("bytes for {} tokens", kv.page_size)),
      Number("kv_bytes_full_context", (c.max_positions + kv.page_size - 1) / kv.page_size * kv.PageBytes(),
             "bytes"),
      Number("scoring_bytes", Engine::ScoringBytes(c, rows, threads),
             "bytes beside weights and KV, at any length"),
      Number("beside_bytes", kBesideBytes, "bytes of program, tokenizer, requests and results, at the most"),
      Number("memory_available", AvailableMemoryBytes(), "bytes"),
  };
  if (engine.memory_limit > 0) {
    const MemoryPlan plan =
        PlanMemory(c, {.weight_bytes = packed, .kv_page_bytes = kv.PageBytes(), .threads = threads}, engine);
    lines.push_back(Number("memory_limit", plan.limit, "bytes"));
    lines.push_back(Number("memory_limit_page_bytes", plan.page_bytes, "bytes a page in all"));
    lines.push_back(
        Number("memory_limit_pages", plan.pages, fmt::format("pages of {} tokens", kv.page_size)));
    lines.push_back(Number("memory_limit_least", plan.Needs(1), "bytes: room for one page"));
  }
  return lines;
}

std::string Render(const std::vector<Line>& lines, Format format) {
  std::string out;
  if (format == Format::kText) {
    for (const Line& line : lines) out += fmt::format("{:22} {} {}\n", line.key, line.value, line.unit);
    return out;
  }
  JsonObject object(out, format == Format::kJson);
  for (const Line& line : lines) {
    if (line.number) {
      object.Field(line.key) += line.value;
    } else {
      AppendJsonString(object.Field(line.key), line.value);
    }
  }
  object.Close();
  return out + "\n";
}

Status Run(const RunOptions& options) {
  ASSIGN_OR_RETURN(const Format format, ToFormat(options));
  ASSIGN_OR_RETURN(const RuntimeOptions runtime, ToRuntimeOptions(options));
  ASSIGN_OR_RETURN(EngineOptions engine, ToEngineOptions(options));
  engine.generates = false;
  RETURN_IF_ERROR(Output::CheckWritable(options.output));
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options.model));
  ASSIGN_OR_RETURN(const std::vector<Line> lines,
                   Describe(*checkpoint, runtime.compute, engine, runtime.threads));
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open(options.output));
  RETURN_IF_ERROR(output->Write(Render(lines, format)));
  return output->Close();
}

}  // namespace

Command AddInfo(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "what the checkpoint is, and what it will need");
  auto options = std::make_shared<RunOptions>();
  AddModelOption(*command, *options);
  AddRunOptions(*command, *options);
  AddEngineOptions(*command, *options);
  AddOutputOptions(*command, *options);
  return {.run = [options] { return Run(*options); }, .options = nullptr};
}

}  // namespace plumbline::cli
