#include "plumbline/pipelines/verify_requests.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "plumbline/base/philox.h"
#include "plumbline/pipelines/engine.h"

namespace plumbline {
namespace {

// One row, a few, and what lies around a block of 64 keys and a page of 128.
constexpr int64_t kScoredLengths[] = {1, 2, 7, 63, 64, 65, 130, 200};
constexpr int64_t kShortest = 65;  // the longest of short_only
constexpr int64_t kPromptLengths[] = {1, 7, 65};
constexpr int64_t kNewTokens = 8;
constexpr int32_t kTop = 5;
constexpr int64_t kStrangers = 33;
constexpr uint32_t kStrangerKey = 1000;  // above every other request's number

// Words of an answer, in the order of kVerifyQuantities.
enum Quantity { kLogProbs, kTopK, kMaxLogits, kNormalized, kLast, kGeneratedTokens, kGeneratedLogProbs };

std::vector<int32_t> RandomTokens(uint32_t request, int64_t length, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < length; ++i) {
    const uint32_t word = Philox4x32({0x706c756d, request}, {static_cast<uint32_t>(i), 0, 0, 0})[0];
    tokens.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

Request MakeRequest(const DecoderConfig& config, uint32_t number, int64_t length, bool generate) {
  const int64_t new_tokens = generate ? std::min(kNewTokens, config.max_positions - 1) : 0;
  length = std::min(length, config.max_positions - new_tokens);
  Request request{.id = std::to_string(number), .tokens = RandomTokens(number, length, config.vocab)};
  request.top_logprobs = kTop;
  request.max_logits = true;
  request.max_new_tokens = new_tokens;
  request.score_from = generate ? length : 1;
  // Every third by chance, the others greedily.
  if (generate && number % 3 == 2) request.sampling = {.temperature = 0.8f, .seed = number};
  return request;
}

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
    const int64_t prompt = static_cast<int64_t>(asked_.requests[request].tokens.size());
    if (generate_ && first_row < prompt - 1) return {};
    std::vector<uint32_t>& words = answers_[answer].words[generate_ ? kLast : kNormalized];
    for (const MatrixView<const float>& rows : states) {
      for (int64_t row = 0; row < rows.rows; ++row) {
        AppendFloats(words, {rows.Row(row), static_cast<size_t>(rows.cols)});
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
    AppendFloats(words[generate_ ? kGeneratedLogProbs : kLogProbs], result.logprobs);
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

Result<std::vector<VerifyAnswer>> RunRequests(const Runtime& runtime, const VerifyCase& how, bool generate,
                                              const std::atomic<bool>* cancelled) {
  const VerifyRequests asked = MakeVerifyRequests(runtime.config(), how, generate);
  EngineOptions options{
      .chunk_size = how.chunk_size, .batch_size = how.batch_size, .page_size = how.page_size};
  options.hidden_states = generate ? ReturnHiddenStates::kLast : ReturnHiddenStates::kAllNormalized;
  options.cancelled = cancelled;
  ASSIGN_OR_RETURN(Engine engine, Engine::Create(runtime, options));
  Recorder recorder(asked, generate);
  RETURN_IF_ERROR(engine.Run(asked.requests, recorder));
  return std::move(recorder.answers());
}

}  // namespace

VerifyRequests MakeVerifyRequests(const DecoderConfig& config, const VerifyCase& how, bool generate) {
  const std::span<const int64_t> lengths =
      generate ? std::span<const int64_t>(kPromptLengths) : std::span<const int64_t>(kScoredLengths);
  VerifyRequests out;
  const auto add = [&](uint32_t number, int64_t length, int answer) {
    out.requests.push_back(MakeRequest(config, number, length, generate));
    out.answer_of.push_back(answer);
  };
  int64_t strangers = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    // Strangers on both sides, so that a request's place in the batch moves too.
    const int64_t until = how.strangers ? kStrangers * (i + 1) / (lengths.size() + 1) : 0;
    for (; strangers < until; ++strangers) {
      add(kStrangerKey + static_cast<uint32_t>(strangers), 1 + strangers % 24, -1);
    }
    if (how.short_only && lengths[i] > kShortest) continue;
    add(static_cast<uint32_t>(i), lengths[i], static_cast<int>(i));
  }
  for (; how.strangers && strangers < kStrangers; ++strangers) {
    add(kStrangerKey + static_cast<uint32_t>(strangers), 1 + strangers % 24, -1);
  }
  return out;
}

Result<VerifyAnswers> RunVerifyCase(const Runtime& runtime, const VerifyCase& how,
                                    const std::atomic<bool>* cancelled) {
  VerifyAnswers answers;
  ASSIGN_OR_RETURN(answers.scored, RunRequests(runtime, how, /*generate=*/false, cancelled));
  ASSIGN_OR_RETURN(answers.generated, RunRequests(runtime, how, /*generate=*/true, cancelled));
  return answers;
}

}  // namespace plumbline
