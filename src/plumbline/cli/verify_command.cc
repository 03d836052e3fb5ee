#include <memory>

#include "plumbline/cli/commands.h"
#include "plumbline/cli/json_writer.h"
#include "plumbline/cli/options.h"
#include "plumbline/cli/output.h"
#include "plumbline/cli/progress.h"
#include "plumbline/pipelines/verify.h"

namespace plumbline::cli {
namespace {

// A table's columns of digests show this many of the 64 digits.
constexpr size_t kShownDigits = 12;

std::string HeaderText() {
  std::string out = fmt::format("{:9} {:11}", "axis", "value");
  for (std::string_view name : kVerifyQuantities) out += fmt::format(" {:>16}", name);
  return out + "  equal\n";
}

std::string CaseText(const VerifyCaseReport& done) {
  std::string out = fmt::format("{:9} {:11}", done.how.axis, done.how.value);
  for (const std::string& digest : done.digests)
    out += fmt::format(" {:>16}", digest.substr(0, kShownDigits));
  out += done.difference.empty() ? "  yes\n" : "  NO\n";
  if (!done.difference.empty()) out += fmt::format("          {}\n", done.difference);
  return out;
}

std::string DigestsText(const VerifyDigests& digests) {
  std::string out;
  for (size_t q = 0; q < kVerifyQuantities.size(); ++q) {
    out += fmt::format("{:16} {}\n", kVerifyQuantities[q], digests[q]);
  }
  return out;
}

void AppendDigests(std::string& out, const VerifyDigests& digests) {
  JsonObject object(out, /*pretty=*/false);
  for (size_t q = 0; q < kVerifyQuantities.size(); ++q) {
    AppendJsonString(object.Field(kVerifyQuantities[q]), digests[q]);
  }
  object.Close();
}

void AppendCase(std::string& out, const VerifyCaseReport& done) {
  JsonObject object(out, /*pretty=*/false);
  AppendJsonString(object.Field("axis"), done.how.axis);
  AppendJsonString(object.Field("value"), done.how.value);
  object.Field("equal") += done.difference.empty() ? "true" : "false";
  if (!done.difference.empty()) AppendJsonString(object.Field("difference"), done.difference);
  AppendDigests(object.Field("digests"), done.digests);
  object.Field("rows_reused") += std::to_string(done.rows_reused);
  object.Field("drafts_accepted") += std::to_string(done.drafts_accepted);
  object.Field("drafts_rejected") += std::to_string(done.drafts_rejected);
  object.Close();
}

std::string ReportJson(const VerifyReport& report, const Runtime& runtime, bool pretty) {
  std::string out;
  JsonObject object(out, pretty);
  object.Field("ok") += report.ok ? "true" : "false";
  if (!report.ok) AppendJsonString(object.Field("difference"), report.difference);
  AppendDigests(object.Field("digests"), report.cases.front().digests);
  AppendJsonArray(object.Field("cases"), report.cases, AppendCase);
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
  const int64_t total = static_cast<int64_t>(VerifyCases(runtime->options(), runtime->config()).size());
  Progress bar("verifying", options.quiet);
  int64_t done = 0;
  const auto progress = [&](const VerifyCaseReport& one) -> Status {
    bar.Update(++done, total, "cases");
    if (format != Format::kText) return {};
    bar.Clear();
    return output->Write((done == 1 ? HeaderText() : "") + CaseText(one));
  };
  ASSIGN_OR_RETURN(const VerifyReport report, Verify(*runtime, &cancelled, progress));
  bar.Clear();
  RETURN_IF_ERROR(output->Write(format == Format::kText
                                    ? DigestsText(report.cases.front().digests)
                                    : ReportJson(report, *runtime, format == Format::kJson)));
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
  return {.run = [options, &cancelled] { return Run(*options, cancelled); }, .options = options};
}

}  // namespace plumbline::cli
