// Runs one case of verify and records what its requests gave.
#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "plumbline/pipelines/engine.h"
#include "plumbline/pipelines/verify_requests.h"

namespace plumbline {
namespace {

void AppendFloats(std::vector<uint32_t>& words, std::span<const float> values) {
  for (float value : values) words.push_back(std::bit_cast<uint32_t>(value));
}

class Recorder : public EngineListener {
 public:
  Recorder(const VerifyRequests& asked, bool generate) : asked_(asked), generate_(generate) {
    answers_.resize(std::ranges::count_if(asked.answer_of, [](int answer) { return answer >= 0; }));
  }

  Status OnHiddenStates(size_t request, int64_t first_row,
                        std::span<const MatrixView<const float>> states) override {
    const int answer = asked_.answer_of[request];
    if (answer < 0) return {};
    // Where a chunk ends is no property of the request: of the prompt only its last row counts.
    const auto prompt = static_cast<int64_t>(asked_.requests[request].tokens.size());
    if (generate_ && first_row < prompt - 1) return {};
    for (const MatrixView<const float>& rows : states) {
      for (int64_t row = 0; row < rows.rows; ++row) {
        AppendFloats(answers_[answer].words[kHiddenStates], {rows.Row(row), static_cast<size_t>(rows.cols)});
      }
    }
    return {};
  }

  Status OnResult(size_t request, RequestResult result) override {
    if (asked_.answer_of[request] < 0) return {};
    auto& words = answers_[asked_.answer_of[request]].words;
    AppendFloats(words[kMaxLogits], result.max_logits);
    for (const auto& [id, logprob] : result.top) {
      words[kTopK].push_back(static_cast<uint32_t>(id));
      AppendFloats(words[kTopK], {&logprob, 1});
    }
    AppendFloats(words[kLogProbs], result.logprobs);
    if (generate_)
      words[kGeneratedTokens].assign(result.tokens.begin() + result.prompt_tokens, result.tokens.end());
    return {};
  }

  std::vector<VerifyAnswer>& answers() { return answers_; }

 private:
  const VerifyRequests& asked_;
  const bool generate_;
  std::vector<VerifyAnswer> answers_;
};

class Ignorer : public EngineListener {
  Status OnResult(size_t /*request*/, RequestResult /*result*/) override { return {}; }
};

Result<std::vector<VerifyAnswer>> RunRequests(const Runtime& runtime, const VerifyCase& how, bool generate,
                                              bool observed, const std::atomic<bool>* cancelled,
                                              VerifyAnswers& counts) {
  const VerifyRequests asked = MakeVerifyRequests(runtime.config(), how, generate, observed);
  EngineOptions options{.chunk_size = how.chunk_size,
                        .batch_size = how.batch_size,
                        .page_size = how.page_size,
                        .prefix_cache = how.known.has_value()};
  if (observed)
    options.hidden_states = generate ? ReturnHiddenStates::kLast : ReturnHiddenStates::kAllNormalized;
  options.cancelled = cancelled;
  ASSIGN_OR_RETURN(Engine engine, Engine::Create(runtime, options));
  Ignorer ignorer;
  if (!asked.earlier.empty()) RETURN_IF_ERROR(engine.Run(asked.earlier, ignorer));
  Recorder recorder(asked, generate);
  RETURN_IF_ERROR(engine.Run(asked.requests, recorder));
  counts.rows_reused += engine.stats().rows_reused;
  counts.drafts_accepted += engine.stats().drafts_accepted;
  counts.drafts_rejected += engine.stats().drafts_rejected;
  return std::move(recorder.answers());
}

}  // namespace

Result<VerifyAnswers> RunVerifyCase(const Runtime& runtime, const VerifyCase& how, bool observed,
                                    const std::atomic<bool>* cancelled) {
  VerifyAnswers answers;
  ASSIGN_OR_RETURN(answers.scored,
                   RunRequests(runtime, how, /*generate=*/false, observed, cancelled, answers));
  ASSIGN_OR_RETURN(answers.generated,
                   RunRequests(runtime, how, /*generate=*/true, observed, cancelled, answers));
  return answers;
}

}  // namespace plumbline
