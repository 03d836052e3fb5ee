#include "plumbline/cli/result_json.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "plumbline/cli/json_writer.h"
#include "plumbline/kernels/math/scalar_math.h"
#include "plumbline/pipelines/digest.h"

namespace plumbline::cli {
namespace {

void AppendTokenText(std::string& out, const Runtime& runtime, int32_t id) {
  AppendJsonString(out, runtime.tokenizer() == nullptr ? std::string() : runtime.tokenizer()->TokenBytes(id));
}

void AppendInts(std::string& out, const auto& values) {
  AppendJsonArray(out, values,
                  [](std::string& o, auto value) { fmt::format_to(std::back_inserter(o), "{}", value); });
}

void AppendTop(std::string& out, const Runtime& runtime, const RequestResult& result, int64_t entry) {
  AppendJsonArray(out, result.Top(entry), [&](std::string& o, const std::pair<int32_t, float>& top) {
    fmt::format_to(std::back_inserter(o), "{{\"id\": {}, \"token\": ", top.first);
    AppendTokenText(o, runtime, top.first);
    o += ", \"logprob\": ";
    AppendJsonFloat(o, top.second);
    o += '}';
  });
}

// [null x leading, entry, entry, ...]
template <typename Fn>
void AppendEntries(std::string& out, int64_t leading, int64_t entries, Fn&& fn) {
  out += '[';
  for (int64_t i = 0; i < leading + entries; ++i) {
    if (i > 0) out += ", ";
    if (i < leading) {
      out += "null";
    } else {
      fn(out, i - leading);
    }
  }
  out += ']';
}

void AppendMaxLogits(std::string& out, const RequestResult& result, int64_t heads) {
  out += '[';
  for (size_t begin = 0; begin < result.max_logits.size(); begin += heads) {
    if (begin > 0) out += ", ";
    AppendJsonArray(out, std::span(result.max_logits).subspan(begin, heads), AppendJsonFloat);
  }
  out += ']';
}

// Where a log-prob is -inf, which strict JSON cannot say.
std::vector<int64_t> NegInfIndices(const RequestResult& result, int64_t first) {
  std::vector<int64_t> indices;
  for (size_t i = 0; i < result.logprobs.size(); ++i) {
    if (std::isinf(result.logprobs[i])) indices.push_back(first + static_cast<int64_t>(i));
  }
  return indices;
}

void AppendReceipt(std::string& out, const ReceiptContext& receipt, const RequestResult& result) {
  const RuntimeOptions& options = receipt.runtime->options();
  JsonObject object(out, /*pretty=*/false);
  fmt::format_to(std::back_inserter(object.Field("numerics_version")), "{}", kNumericsVersion);
  AppendJsonString(object.Field("model_sha256"), receipt.runtime->ModelSha256());
  AppendJsonString(object.Field("compute"), Name(options.compute));
  AppendJsonString(object.Field("isa"), Name(options.isa));
  fmt::format_to(std::back_inserter(object.Field("threads")), "{}", options.threads);
  const ParallelDegrees& degrees = options.degrees;
  for (const auto& [name, degree] : {std::pair{"tp", degrees.tp},
                                     {"dp", degrees.dp},
                                     {"pp", degrees.pp},
                                     {"ep", degrees.ep},
                                     {"cp", degrees.cp}}) {
    fmt::format_to(std::back_inserter(object.Field(name)), "{}", degree);
  }
  if (receipt.chunk_size > 0) {
    fmt::format_to(std::back_inserter(object.Field("chunk_size")), "{}", receipt.chunk_size);
  } else {
    AppendJsonString(object.Field("chunk_size"), "all");
  }
  AppendJsonString(object.Field("digest"), ResultDigest(result));
  object.Close();
}

}  // namespace

ScoreSummary Summarize(const ScoreRecord& record) {
  ScoreSummary summary;
  const int64_t begin = std::max<int64_t>(1, record.continuation_begin);
  for (size_t i = begin - 1; i < record.result.logprobs.size(); ++i) {
    summary.sum_logprob += record.result.logprobs[i];
    ++summary.tokens;
  }
  summary.perplexity =
      summary.tokens > 0 ? ExpD(-summary.sum_logprob / static_cast<double>(summary.tokens)) : 1.0;
  return summary;
}

std::string ScoreJson(const ScoreRecord& record, const ReceiptContext& receipt, bool pretty) {
  const RequestResult& result = record.result;
  const Runtime& runtime = *receipt.runtime;
  const int64_t entries = static_cast<int64_t>(result.logprobs.size());
  std::string out;
  // About what it will be: a long record should not be copied as it grows.
  out.reserve(result.tokens.size() * (96 + 80 * static_cast<size_t>(result.top_k)));
  JsonObject object(out, pretty);
  AppendJsonString(object.Field("id"), record.id);
  AppendInts(object.Field("tokens"), result.tokens);
  AppendJsonArray(object.Field("token_strings"), result.tokens,
                  [&](std::string& o, int32_t id) { AppendTokenText(o, runtime, id); });
  AppendEntries(object.Field("token_logprobs"), 1, entries,
                [&](std::string& o, int64_t i) { AppendJsonFloat(o, result.logprobs[i]); });
  AppendEntries(object.Field("top_logprobs"), 1, entries,
                [&](std::string& o, int64_t i) { AppendTop(o, runtime, result, i); });
  AppendEntries(object.Field("ranks"), 1, entries, [&](std::string& o, int64_t i) {
    fmt::format_to(std::back_inserter(o), "{}", result.ranks[i]);
  });
  const std::vector<int64_t> neg_inf = NegInfIndices(result, 1);
  if (!neg_inf.empty()) AppendInts(object.Field("neg_inf"), neg_inf);
  if (record.continuation_begin > 0) {
    fmt::format_to(std::back_inserter(object.Field("continuation_begin")), "{}", record.continuation_begin);
  }
  const ScoreSummary summary = Summarize(record);
  const bool finite = std::isfinite(summary.sum_logprob);
  fmt::format_to(std::back_inserter(object.Field("sum_logprob")), "{}",
                 finite ? summary.sum_logprob : -9999.0);
  // A perplexity beyond float64 has no JSON number.
  if (std::isfinite(summary.perplexity)) {
    fmt::format_to(std::back_inserter(object.Field("perplexity")), "{}", summary.perplexity);
  } else {
    object.Field("perplexity") += "null";
  }
  if (!result.max_logits.empty()) AppendMaxLogits(object.Field("max_logits"), result, runtime.config().heads);
  AppendReceipt(object.Field("receipt"), receipt, result);
  object.Close();
  out += '\n';
  return out;
}

std::string GenerateJson(const GenerateRecord& record, const ReceiptContext& receipt, bool pretty) {
  const RequestResult& result = record.result;
  const Runtime& runtime = *receipt.runtime;
  const std::span<const int32_t> tokens = result.tokens;
  const std::span<const int32_t> output = tokens.subspan(result.prompt_tokens);
  std::string out;
  JsonObject object(out, pretty);
  AppendJsonString(object.Field("id"), record.id);
  AppendInts(object.Field("tokens"), tokens.first(result.prompt_tokens));
  AppendInts(object.Field("output_tokens"), output);
  AppendJsonArray(object.Field("output_token_strings"), output,
                  [&](std::string& o, int32_t id) { AppendTokenText(o, runtime, id); });
  if (record.with_logprobs) {
    AppendJsonArray(object.Field("output_logprobs"), result.logprobs, AppendJsonFloat);
    AppendEntries(object.Field("top_logprobs"), 0, static_cast<int64_t>(output.size()),
                  [&](std::string& o, int64_t i) { AppendTop(o, runtime, result, i); });
    const std::vector<int64_t> neg_inf = NegInfIndices(result, 0);
    if (!neg_inf.empty()) AppendInts(object.Field("neg_inf"), neg_inf);
  }
  AppendJsonString(object.Field("text"), record.text);
  AppendJsonString(object.Field("finish_reason"),
                   result.finish_reason == FinishReason::kStop ? "stop" : "length");
  if (!result.max_logits.empty()) AppendMaxLogits(object.Field("max_logits"), result, runtime.config().heads);
  AppendReceipt(object.Field("receipt"), receipt, result);
  object.Close();
  out += '\n';
  return out;
}

}  // namespace plumbline::cli
