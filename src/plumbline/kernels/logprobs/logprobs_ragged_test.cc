#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/logprobs/logprobs.h"
#include "plumbline/kernels/logprobs/logprobs_test_util.h"
#include "plumbline/kernels/logprobs/logprobs_twin.h"

namespace plumbline {
namespace {

using logprobs_testing::BitsOf;
using logprobs_testing::Kind;
namespace twin = logprobs_twin;

struct Step {
  int64_t vocab = 6;
  bool full_logits = true;
  std::vector<uint32_t> offsets = {0}, tokens, sampled;
  std::vector<float> logits, next_token_logits;
  std::vector<int32_t> top_n;
  std::vector<uint8_t> echo;

  RaggedLogProbRequest Request() const {
    RaggedLogProbRequest request = {
        .input_row_offsets = offsets,
        .logits = std::nullopt,
        .next_token_logits = {next_token_logits.data(), static_cast<int64_t>(sampled.size()), vocab},
        .tokens = tokens,
        .sampled_tokens = sampled,
        .batch_top_n = top_n,
        .batch_echo = echo};
    if (full_logits) {
      request.logits = MatrixView<const float>(logits.data(), static_cast<int64_t>(tokens.size()), vocab);
    }
    return request;
  }

  void Add(std::vector<uint32_t> sequence, uint32_t next, int32_t n, bool with_echo, std::mt19937& random,
           Kind kind) {
    for (uint32_t token : sequence) {
      tokens.push_back(token);
      const std::vector<float> row = logprobs_testing::Row(kind, vocab, random);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    offsets.push_back(static_cast<uint32_t>(tokens.size()));
    next_token_logits.insert(next_token_logits.end(), logits.end() - vocab, logits.end());
    sampled.push_back(next);
    top_n.push_back(n);
    echo.push_back(with_echo);
  }
};

// The properties of the decoder contract, section 4.7, and the twin's bits.
void ExpectRow(std::span<const float> x, uint32_t token, int32_t top_n, const LogProbabilities& result,
               size_t i) {
  const ScopedFloatEnv float_env;
  const float norm = twin::Norm(x);
  EXPECT_EQ(result.sampled_token_ids[i], token);
  EXPECT_EQ(BitsOf(result.token_log_probabilities[i]), BitsOf(twin::LogProb(x[token], norm)));
  const auto& map = result.top_log_probabilities[i];
  std::vector<TopEntry> best = twin::Ranking(x);
  if (static_cast<int64_t>(best.size()) > top_n) best.resize(top_n);
  bool found = false;
  for (const TopEntry& entry : best) found = found || entry.id == static_cast<int32_t>(token);
  if (!found) best.push_back({x[token], static_cast<int32_t>(token)});
  ASSERT_EQ(map.size(), best.size());
  for (size_t slot = 0; slot < best.size(); ++slot) {
    EXPECT_EQ(map[slot].first, static_cast<uint32_t>(best[slot].id));
    EXPECT_EQ(BitsOf(map[slot].second), BitsOf(twin::LogProb(best[slot].value, norm)));
  }
}

TEST(RaggedLogProbabilities, RandomBatches) {
  std::mt19937 random(11);
  for (int seed = 0; seed < 50; ++seed) {
    Step step;
    step.vocab = 1 + random() % 128;
    step.full_logits = random() % 2 == 0;
    const int sequences = 1 + random() % 32;
    for (int b = 0; b < sequences; ++b) {
      std::vector<uint32_t> sequence(1 + random() % 40);
      for (uint32_t& token : sequence) token = random() % step.vocab;
      const int32_t n = random() % 3 == 0 ? 0 : std::array{1, 2, 5, 7, 8, 20, 300}[random() % 7];
      const bool echo = step.full_logits && random() % 2 == 0;
      step.Add(sequence, random() % step.vocab, n, echo, random, random() % 2 ? Kind::kTies : Kind::kNormal);
    }
    const std::vector<Isa> isas = SupportedIsas();
    ThreadPool pool(1 + seed % 5);
    const auto results = compute_log_probabilities_ragged({pool, isas[seed % isas.size()]}, step.Request());
    ASSERT_TRUE(results.has_value()) << results.error().message;
    for (size_t b = 0; b < step.sampled.size(); ++b) {
      const auto& result = (*results)[b];
      ASSERT_EQ(result.has_value(), step.top_n[b] != 0);
      if (!result) continue;
      const size_t length = step.offsets[b + 1] - step.offsets[b];
      const size_t count = step.echo[b] ? length : 1;
      ASSERT_EQ(result->token_log_probabilities.size(), count);
      ASSERT_EQ(result->top_log_probabilities.size(), count);
      for (size_t i = 0; i < count; ++i) {
        const size_t at = step.offsets[b + 1] - count + i;
        const uint32_t token = i + 1 == count ? step.sampled[b] : step.tokens[at + 1];
        const std::span<const float> x(&step.logits[at * step.vocab], static_cast<size_t>(step.vocab));
        ExpectRow(x, token, step.top_n[b], *result, i);
      }
    }
  }
}

TEST(RaggedLogProbabilities, TheChosenTokenIsAppendedOnlyWhereItIsOutside) {
  Step step;
  step.full_logits = false;
  step.offsets = {0, 1, 2};
  step.tokens = {0, 0};
  step.sampled = {4, 3};
  step.next_token_logits = {1, 5, 2, 4, 0, 3, 1, 5, 2, 4, 0, 3};
  step.top_n = {2, 2};
  step.echo = {0, 0};
  ThreadPool pool(1);
  const auto results = compute_log_probabilities_ragged({pool, Isa::kAvx2}, step.Request());
  ASSERT_TRUE(results.has_value());
  const auto& outside = (*results)[0]->top_log_probabilities[0];
  ASSERT_EQ(outside.size(), 3u);
  EXPECT_EQ(outside[0].first, 1u);
  EXPECT_EQ(outside[1].first, 3u);
  EXPECT_EQ(outside[2].first, 4u);
  const auto& inside = (*results)[1]->top_log_probabilities[0];
  ASSERT_EQ(inside.size(), 2u);
  EXPECT_EQ(inside[1].second, (*results)[1]->token_log_probabilities[0]);
}

TEST(RaggedLogProbabilities, AnEmptyBatchIsEmpty) {
  ThreadPool pool(2);
  Step step;
  const auto results = compute_log_probabilities_ragged({pool, Isa::kAvx2}, step.Request());
  ASSERT_TRUE(results.has_value()) << results.error().message;
  EXPECT_TRUE(results->empty());
}

TEST(RaggedLogProbabilities, EveryFaultHasItsOwnMessage) {
  const std::vector<std::pair<std::function<void(Step&)>, std::string>> cases = {
      {[](Step& s) { s.top_n.pop_back(); }, "batch_top_n length: got 1, want 2 (length of sampled_tokens)"},
      {[](Step& s) { s.echo.push_back(0); }, "batch_echo length: got 3, want 2 (length of sampled_tokens)"},
      {[](Step& s) { s.top_n[1] = -1; }, "batch_top_n[1]: got -1, want at least 0"},
      {[](Step& s) { s.full_logits = false; },
       "logits: got none, want those of every token (batch_echo[0] is set)"},
      {[](Step& s) {
         s.offsets = {0, 3, 4};
       },
       "input_row_offsets[2]: got 4, want 5 (length of tokens)"},
      {[](Step& s) {
         s.offsets = {0, 6, 5};
       },
       "input_row_offsets[2]: got 5, want at least 6 (the offset before it)"},
      {[](Step& s) {
         s.offsets = {0, 5, 5};
       },
       "input_row_offsets of sequence 1: got 0 tokens, want at least 1 (batch_top_n[1] is 2)"},
      {[](Step& s) { s.vocab = 0; }, "next_token_logits columns: got 0, want 1 to 2147483647"},
      {[](Step& s) { s.tokens[4] = 6; }, "tokens[4]: got token id 6, want less than 6 (columns of logits)"},
      {[](Step& s) { s.sampled[0] = 9; },
       "sampled_tokens[0]: got token id 9, want less than 6 (columns of logits)"}};
  ThreadPool pool(1);
  for (const auto& [spoil, message] : cases) {
    std::mt19937 random(12);
    Step step;
    step.Add({1, 2, 3}, 4, 1, true, random, Kind::kNormal);
    step.Add({1, 2}, 5, 2, false, random, Kind::kNormal);
    spoil(step);
    const auto results = compute_log_probabilities_ragged({pool, Isa::kAvx2}, step.Request());
    ASSERT_FALSE(results.has_value()) << message;
    EXPECT_EQ(results.error().message, message);
  }
}

TEST(RaggedLogProbabilities, ShapesOfTheTwoLogitsMustAgree) {
  std::mt19937 random(13);
  Step step;
  step.Add({1, 2, 3}, 4, 1, true, random, Kind::kNormal);
  ThreadPool pool(1);
  RaggedLogProbRequest request = step.Request();
  request.logits->rows = 2;
  EXPECT_EQ(compute_log_probabilities_ragged({pool, Isa::kAvx2}, request).error().message,
            "logits rows: got 2, want 3 (length of tokens)");
  request = step.Request();
  request.logits->cols = 5;
  EXPECT_EQ(compute_log_probabilities_ragged({pool, Isa::kAvx2}, request).error().message,
            "logits columns: got 5, want 6 (columns of next_token_logits)");
  request = step.Request();
  request.next_token_logits.rows = 0;
  EXPECT_EQ(compute_log_probabilities_ragged({pool, Isa::kAvx2}, request).error().message,
            "next_token_logits rows: got 0, want 1 (length of sampled_tokens)");
}

}  // namespace
}  // namespace plumbline
