#include "plumbline/cli/score_text.h"

#include "plumbline/cli/json_writer.h"
#include "plumbline/pipelines/digest.h"

namespace plumbline::cli {
namespace {

constexpr int kTokenWidth = 16;

// Quoted, so that spaces and line ends show.
std::string Quoted(const Runtime& runtime, int32_t id) {
  std::string out;
  AppendJsonString(
      out, runtime.tokenizer() == nullptr ? fmt::format("<{}>", id) : runtime.tokenizer()->TokenBytes(id));
  return out;
}

}  // namespace

std::string ScoreText(const ScoreRecord& record, const Runtime& runtime) {
  const RequestResult& result = record.result;
  const ScoreSummary summary = Summarize(record);
  std::string out = fmt::format("request {}: {} tokens, sum log-prob {:.4f}, perplexity {:.4f}\n", record.id,
                                result.tokens.size(), summary.sum_logprob, summary.perplexity);
  out +=
      fmt::format("{:>6} {:>7}  {:{}} {:>10} {:>6}", "index", "id", "token", kTokenWidth, "log-prob", "rank");
  out += result.top_k > 0 ? fmt::format("  top {}\n", result.top_k) : "\n";
  for (size_t i = 0; i < result.tokens.size(); ++i) {
    out +=
        fmt::format("{:6} {:7}  {:{}}", i, result.tokens[i], Quoted(runtime, result.tokens[i]), kTokenWidth);
    if (i == 0) {
      out += fmt::format(" {:>10} {:>6}\n", "-", "-");
      continue;
    }
    out += fmt::format(" {:10.4f} {:6}", result.logprobs[i - 1], result.ranks[i - 1]);
    for (const auto& [id, logprob] : result.Top(static_cast<int64_t>(i) - 1)) {
      out += fmt::format("  {} {:.2f}", Quoted(runtime, id), logprob);
    }
    out += '\n';
  }
  if (!result.max_logits.empty()) {
    out += "maximum attention logit by layer (rows) and query head (columns)\n";
    out += MaxLogitsText(result, runtime.config().heads);
  }
  out += fmt::format("digest {}\n", ResultDigest(result));
  return out;
}

std::string MaxLogitsText(const RequestResult& result, int64_t heads) {
  std::string out;
  for (size_t i = 0; i < result.max_logits.size(); ++i) {
    const size_t head = i % static_cast<size_t>(heads);
    if (head == 0) out += fmt::format("{:6}", i / static_cast<size_t>(heads));
    out += fmt::format(" {:8.2f}", result.max_logits[i]);
    if (head + 1 == static_cast<size_t>(heads)) out += '\n';
  }
  return out;
}

}  // namespace plumbline::cli
