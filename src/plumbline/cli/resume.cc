#include "plumbline/cli/resume.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

namespace plumbline::cli {
namespace {

using nlohmann::json;

// The fields of a record that `wanted` names, without building the others: a record may be of any length.
json ReadFields(std::string_view line, std::span<const std::string_view> wanted) {
  const auto keep = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth != 1 || event != json::parse_event_t::key) return true;
    return std::ranges::find(wanted, parsed.get_ref<const std::string&>()) != wanted.end();
  };
  json record = json::parse(line, keep, /*allow_exceptions=*/false);
  return record.is_object() ? record : json();
}

// A field as its message shows it: "none" where it is missing.
std::string Shown(const json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  if (!object.is_object() || found == object.end()) return "none";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

Status CheckField(std::string_view what, const std::string& got, const std::string& want,
                  const std::string& path) {
  if (got == want) return {};
  return InvalidInput("--resume: got records of {} {}, want {} ({})", what, got, want, path);
}

}  // namespace

Result<ResumePoint> FindResumePoint(const std::string& path, std::span<const InputDocument> inputs) {
  static constexpr std::string_view kWanted[] = {"id"};
  ResumePoint point;
  std::ifstream file(path, std::ios::binary);
  if (!file) return InvalidInput("--resume: got no readable file, want the records of a run ({})", path);
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) break;  // no newline: part of a record
    if (point.records == inputs.size()) {
      return InvalidInput("--resume: got more than {} records, want at most one a request ({})",
                          point.records, path);
    }
    const json record = ReadFields(line, kWanted);
    const auto id = record.find("id");
    if (id == record.end() || !id->is_string()) {
      return InvalidInput("--resume: got no record, want one a line ({}, line {})", path, point.records + 1);
    }
    const std::string& want = inputs[point.records].id;
    if (*id != want) {
      return InvalidInput("--resume: got the record of request '{}', want that of '{}' ({}, line {})",
                          id->get<std::string>(), want, path, point.records + 1);
    }
    ++point.records;
    point.bytes += static_cast<int64_t>(line.size()) + 1;
    point.last_record = std::move(line);
  }
  if (file.bad()) return Failed("--resume: got a read error, want the records of a run ({})", path);
  return point;
}

Status CheckLastRecord(const ResumePoint& point, const ResumedRun& run, const std::string& path) {
  static constexpr std::string_view kWanted[] = {"tokens", "top_logprobs", "max_logits", "receipt"};
  if (point.records == 0) return {};
  const json record = ReadFields(point.last_record, kWanted);
  const json receipt = record.value("receipt", json());
  const Runtime& runtime = *run.receipt.runtime;
  RETURN_IF_ERROR(CheckField("numerics version", Shown(receipt, "numerics_version"),
                             std::to_string(kNumericsVersion), path));
  RETURN_IF_ERROR(
      CheckField("the model with SHA-256", Shown(receipt, "model_sha256"), runtime.ModelSha256(), path));
  RETURN_IF_ERROR(CheckField("compute type", Shown(receipt, "compute"),
                             std::string(Name(runtime.options().compute)), path));
  const std::string& id = run.last_document.id;
  if (record.value("tokens", json()) != json(run.last_document.tokens)) {
    return InvalidInput("--resume: got a record of other tokens, want those of request '{}' ({})", id, path);
  }
  const json top = record.value("top_logprobs", json());
  if (top.is_array() && top.size() > 1) {
    RETURN_IF_ERROR(
        CheckField("--top-logprobs", std::to_string(top[1].size()), std::to_string(run.top_k), path));
  }
  return CheckField("--max-logit", record.contains("max_logits") ? "on" : "off",
                    run.max_logits ? "on" : "off", path);
}

}  // namespace plumbline::cli
