#include <memory>

#include "plumbline/cli/commands.h"
#include "plumbline/cli/json_writer.h"
#include "plumbline/cli/options.h"
#include "plumbline/cli/output.h"
#include "plumbline/cli/progress.h"
#include "plumbline/pipelines/verify.h"

namespace plumbline::cli {
namespace {

std::string DigestsText(const VerifyReport& report) {
  std::string out;
  for (size_t q = 0; q < kVerifyQuantities.size(); ++q) {
    out += fmt::format("{:28} {}\n", kVerifyQuantities[q], report.digests[q]);
  }
  return out;
}

std::string ReportJson(const VerifyReport& report, const Runtime& runtime, bool pretty) {
  std::string out;
  JsonObject object(out, pretty);
  object.Field("ok") += report.ok ? "true" : "false";
  if (!report.ok) AppendJsonString(object.Field("difference"), report.difference);
  JsonObject digests(object.Field("digests"), /*pretty=*/false);
  for (size_t q = 0; q < kVerifyQuantities.size(); ++q) {
    AppendJsonString(digests.Field(kVerifyQuantities[q]), report.digests[q]);
  }
  digests.Close();
  object.Field("cases") += std::to_string(report.cases);
  object.Field("numerics_version") += std::to_string(kNumericsVersion);
  AppendJsonString(object.Field("model_sha256"), runtime.ModelSha256());
  AppendJsonString(object.Field("compute"), Name(runtime.options().compute));
  object.Close();
  return out + '\n';
}

Status Run(const RunOptions& options, const std::atomic<bool>& cancelled) {
  ASSIGN_OR_RETURN(const Format format, ToFormat(options));
  RETURN_IF_ERROR(Output::CheckWritable(options.output));
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, LoadRuntime(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open(options.output));
  const int64_t total = static_cast<int64_t>(VerifyCases(runtime->options()).size());
  Progress bar("verifying", options.quiet);
  int64_t done = 0;
  const auto progress = [&](const VerifyCase& how, const std::string& difference) -> Status {
    bar.Update(++done, total, "cases");
    if (format != Format::kText) return {};
    bar.Clear();
    return output->Write(fmt::format("{:16} {}\n", how.name, difference.empty() ? "ok" : difference));
  };
  ASSIGN_OR_RETURN(const VerifyReport report, Verify(*runtime, &cancelled, progress));
  bar.Clear();
  RETURN_IF_ERROR(output->Write(
      format == Format::kText ? DigestsText(report) : ReportJson(report, *runtime, format == Format::kJson)));
  RETURN_IF_ERROR(output->Close());
  if (!report.ok) return Failed("verify: {}", report.difference);
  return {};
}

}  // namespace

Command AddVerify(CLI::App& app, const std::atomic<bool>& cancelled) {
  CLI::App* command = app.add_subcommand("verify", "run the same requests in every way and compare the bits");
  auto options = std::make_shared<RunOptions>();
  AddModelOption(*command, *options);
  AddRunOptions(*command, *options);
  AddOutputOptions(*command, *options);
  return [options, &cancelled] { return Run(*options, cancelled); };
}

}  // namespace plumbline::cli
