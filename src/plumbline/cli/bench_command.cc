#include <memory>

#include "plumbline/base/memory.h"
#include "plumbline/cli/bench_runs.h"
#include "plumbline/cli/commands.h"
#include "plumbline/cli/json_writer.h"
#include "plumbline/cli/options.h"
#include "plumbline/cli/output.h"
#include "plumbline/kernels/gemm/gemm_plan.h"
#include "plumbline/kernels/limits/limits.h"

namespace plumbline::cli {
namespace {

constexpr double kLimitSeconds = 0.5;  // for each limit

struct BenchCommandOptions : RunOptions {
  std::string prompts = "128,512";
  std::string streams = "1,16,32,64";
  int64_t new_tokens = 64;
  int64_t repetitions = 3;
};

struct BenchReport {
  MachineLimits limits;
  double peak_operations = 0;  // of the two, the one this compute type and instruction set multiply with
  int64_t step_weight_bytes = 0;
  int64_t peak_resident_bytes = 0;
  std::vector<BenchLine> lines;

  double TokensPerSecond(const BenchLine& line) const {
    return static_cast<double>(line.tokens) / line.seconds;
  }
  double ReadShare(const BenchLine& line) const {
    return static_cast<double>(line.steps * step_weight_bytes) / line.seconds / limits.read_bytes;
  }
  double OperationShare(const BenchLine& line) const {
    return line.operations / line.seconds / peak_operations;
  }
  double DotBf16Share(const BenchLine& line) const {
    return limits.dot_bf16 > 0 ? line.operations / line.seconds / limits.dot_bf16 : 0;
  }
};

Result<BenchOptions> ToBenchOptions(const BenchCommandOptions& options) {
  BenchOptions out{.new_tokens = options.new_tokens,
                   .repetitions = options.repetitions,
                   .page_size = options.kv_page_size};
  ASSIGN_OR_RETURN(out.prompts, ParseIdList("--prompt", options.prompts));
  ASSIGN_OR_RETURN(out.streams, ParseIdList("--streams", options.streams));
  for (int32_t prompt : out.prompts) {
    if (prompt < 1) return InvalidInput("--prompt: got {}, want at least 1", prompt);
  }
  for (int32_t streams : out.streams) {
    if (streams < 1) return InvalidInput("--streams: got {}, want at least 1", streams);
  }
  if (out.new_tokens < 1) return InvalidInput("--new-tokens: got {}, want at least 1", out.new_tokens);
  if (out.repetitions < 1) return InvalidInput("--repetitions: got {}, want at least 1", out.repetitions);
  return out;
}

std::string ReportText(const BenchReport& report, const Runtime& runtime) {
  const RuntimeOptions& options = runtime.options();
  std::string out = fmt::format(
      "{}\n{}{} threads, {}, {}: reads {:.1f} GB/s, multiply-adds {:.0f} GFLOP/s{}\n", runtime.model_path(),
      options.degrees.Ranks() > 1 ? fmt::format("{} ranks of ", options.degrees.Ranks()) : "",
      options.threads, Name(options.isa), Name(options.compute), report.limits.read_bytes * 1e-9,
      report.limits.multiply_add * 1e-9,
      report.limits.dot_bf16 > 0 ? fmt::format(", vdpbf16ps {:.0f} GFLOP/s", report.limits.dot_bf16 * 1e-9)
                                 : "");
  out += fmt::format("{:20} {:>10} {:>8} {:>14} {:>12}\n", "share of", "tokens/s", "read", "multiply-add",
                     "vdpbf16ps");
  for (const BenchLine& line : report.lines) {
    out += fmt::format("{:20} {:>10.1f} {:>6.0f} % {:>12.0f} % {:>10.0f} %", line.work,
                       report.TokensPerSecond(line), 100 * report.ReadShare(line),
                       100 * report.OperationShare(line), 100 * report.DotBf16Share(line));
    if (line.moved_bytes > 0) out += fmt::format("   {} bytes moved a token", line.moved_bytes / line.tokens);
    if (line.first_token_seconds > 0) {
      out += fmt::format("   first token after {:.1f} ms", 1e3 * line.first_token_seconds);
    }
    out += '\n';
  }
  return out + fmt::format("{} bytes of weights a step, {} bytes resident at the most\n",
                           report.step_weight_bytes, report.peak_resident_bytes);
}

std::string ReportJson(const BenchReport& report, const Runtime& runtime, bool pretty) {
  const auto number = [](std::string& o, auto value) { fmt::format_to(std::back_inserter(o), "{}", value); };
  std::string out;
  JsonObject object(out, pretty);
  AppendJsonString(object.Field("model"), runtime.model_path());
  AppendJsonString(object.Field("compute"), Name(runtime.options().compute));
  AppendJsonString(object.Field("isa"), Name(runtime.options().isa));
  number(object.Field("threads"), runtime.options().threads);
  number(object.Field("read_bytes_per_second"), report.limits.read_bytes);
  number(object.Field("multiply_add_flops"), report.limits.multiply_add);
  number(object.Field("dot_bf16_flops"), report.limits.dot_bf16);
  number(object.Field("step_weight_bytes"), report.step_weight_bytes);
  number(object.Field("peak_resident_bytes"), report.peak_resident_bytes);
  AppendJsonArray(object.Field("lines"), report.lines, [&](std::string& o, const BenchLine& line) {
    JsonObject entry(o, /*pretty=*/false);
    AppendJsonString(entry.Field("work"), line.work);
    number(entry.Field("tokens_per_second"), report.TokensPerSecond(line));
    number(entry.Field("read_share"), report.ReadShare(line));
    number(entry.Field("multiply_add_share"), report.OperationShare(line));
    number(entry.Field("dot_bf16_share"), report.DotBf16Share(line));
    if (line.first_token_seconds > 0) number(entry.Field("first_token_seconds"), line.first_token_seconds);
    if (line.moved_bytes > 0) number(entry.Field("moved_bytes_per_token"), line.moved_bytes / line.tokens);
    entry.Close();
  });
  object.Close();
  return out + '\n';
}

Status Run(const BenchCommandOptions& options, const std::atomic<bool>& cancelled) {
  ASSIGN_OR_RETURN(const Format format, ToFormat(options));
  ASSIGN_OR_RETURN(BenchOptions bench, ToBenchOptions(options));
  bench.cancelled = &cancelled;
  RETURN_IF_ERROR(Output::CheckWritable(options.output));
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, LoadRuntime(options));
  BenchReport report;
  report.step_weight_bytes = StepWeightBytes(*runtime);
  ASSIGN_OR_RETURN(report.lines, RunBench(*runtime, bench));
  // Before the limits, whose memory is not the model's.
  report.peak_resident_bytes = PeakResidentBytes();
  ASSIGN_OR_RETURN(report.limits, MeasureLimits(runtime->context(), kLimitSeconds));
  const bool pairs = UsesPairs(runtime->options().isa, runtime->options().compute);
  report.peak_operations = pairs ? report.limits.dot_bf16 : report.limits.multiply_add;
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open(options.output));
  RETURN_IF_ERROR(output->Write(format == Format::kText
                                    ? ReportText(report, *runtime)
                                    : ReportJson(report, *runtime, format == Format::kJson)));
  return output->Close();
}

}  // namespace

Command AddBench(CLI::App& app, const std::atomic<bool>& cancelled) {
  CLI::App* command = app.add_subcommand("bench", "tokens a second, beside the limits of this machine");
  auto options = std::make_shared<BenchCommandOptions>();
  AddModelOption(*command, *options);
  command->add_option("--prompt", options->prompts, "tokens of each prefill")->capture_default_str();
  command->add_option("--streams", options->streams, "sequences of each decode")->capture_default_str();
  command->add_option("--new-tokens", options->new_tokens, "tokens each of them decodes")
      ->capture_default_str();
  command->add_option("--repetitions", options->repetitions, "of each, of which the best counts")
      ->capture_default_str();
  command->add_option("--kv-page-size", options->kv_page_size, "tokens a KV page, a multiple of 64")
      ->capture_default_str();
  AddRunOptions(*command, *options);
  AddOutputOptions(*command, *options);
  return {.run = [options, &cancelled] { return Run(*options, cancelled); }, .options = options};
}

}  // namespace plumbline::cli
