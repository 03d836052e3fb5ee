#include "plumbline/kernels/sampling/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/sampling/sampling_twin.h"

namespace plumbline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

enum class Kind { kPeaked, kFlat, kTies, kMasked, kTiny };
constexpr Kind kKinds[] = {Kind::kPeaked, Kind::kFlat, Kind::kTies, Kind::kMasked, Kind::kTiny};

std::vector<float> RandomLogits(Kind kind, int64_t vocab, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> x(static_cast<size_t>(vocab));
  for (float& value : x) {
    const float n = normal(random);
    value = kind == Kind::kPeaked   ? 6.0f * n
            : kind == Kind::kFlat   ? 0.1f * n
            : kind == Kind::kTies   ? std::round(2.0f * n)
            : kind == Kind::kMasked ? (random() % 4 == 0 ? n : -kInfinity)
                                    : n * 2e-38f * static_cast<float>(random() % 2);
  }
  x[random() % vocab] = kind == Kind::kPeaked ? 20.0f : 0.5f;
  return x;
}

TEST(SampleToken, IsTheTwinForEveryMixOfOptions) {
  const ScopedFloatEnv float_env;
  std::mt19937 random(1);
  SamplingScratch scratch;
  for (Kind kind : kKinds) {
    for (int64_t vocab : {1, 2, 3, 17, 63, 64, 65, 100, 1000, 5003}) {
      for (int round = 0; round < 60; ++round) {
        const std::vector<float> logits = RandomLogits(kind, vocab, random);
        std::vector<int32_t> history(random() % 5);
        for (int32_t& id : history) id = static_cast<int32_t>(random() % vocab);
        SamplingOptions options;
        options.temperature = std::array{0.0f, 0.05f, 0.7f, 1.0f, 1.5f, 50.0f}[random() % 6];
        options.top_k = std::array{0, 0, 1, 2, 5, 50, 4000, 1 << 30}[random() % 8];
        options.top_p = std::array{1.0f, 1.0f, 0.95f, 0.5f, 0.1f, 1e-6f, 0.99999994f}[random() % 7];
        options.min_p = std::array{0.0f, 0.0f, 1e-9f, 0.05f, 0.5f, 1.0f}[random() % 6];
        options.repetition_penalty = std::array{1.0f, 1.3f, 0.5f}[random() % 3];
        options.seed = random() * uint64_t{0x9e3779b97f4a7c15};
        const auto position = static_cast<int64_t>(random());
        const Result<int32_t> token = SampleToken(logits, history, position, options, scratch);
        ASSERT_TRUE(token.has_value()) << token.error().message;
        ASSERT_EQ(*token, sampling_twin::Sample(logits, history, position, options))
            << "vocab " << vocab << " T " << options.temperature << " k " << options.top_k << " p "
            << options.top_p << " min " << options.min_p << " r " << options.repetition_penalty;
      }
    }
  }
}

// Enough candidates for every way of sorting and selecting them.
TEST(SampleToken, ALargeVocabularyIsTheTwin) {
  const ScopedFloatEnv float_env;
  std::mt19937 random(2);
  SamplingScratch scratch;
  for (Kind kind : kKinds) {
    const std::vector<float> logits = RandomLogits(kind, 49152, random);
    for (const SamplingOptions& options :
         {SamplingOptions{.temperature = 1.0f}, SamplingOptions{.temperature = 0.8f, .top_k = 40},
          SamplingOptions{.temperature = 1.2f, .top_k = 20000, .top_p = 0.9f},
          SamplingOptions{.temperature = 3.0f, .top_p = 0.95f, .min_p = 0.01f}}) {
      for (int64_t position = 0; position < 3; ++position) {
        EXPECT_EQ(SampleToken(logits, {}, position, options, scratch).value(),
                  sampling_twin::Sample(logits, {}, position, options));
      }
    }
  }
}

// Pearson's statistic of draws at positions 0 .. n - 1 against the exact probabilities of what is kept.
double ChiSquare(std::span<const float> logits, const SamplingOptions& options, int64_t draws) {
  std::vector<sampling_twin::Candidate> kept = sampling_twin::Kept(logits, {}, options);
  double total = 0.0;
  for (const auto& candidate : kept) total += std::exp((candidate.value - kept[0].value) * 1.0);
  std::map<int32_t, int64_t> counts;
  SamplingScratch scratch;
  for (int64_t position = 0; position < draws; ++position) {
    ++counts[SampleToken(logits, {}, position, options, scratch).value()];
  }
  double statistic = 0.0;
  int64_t counted = 0;
  for (const auto& candidate : kept) {
    const double expected = draws * std::exp((candidate.value - kept[0].value) * 1.0) / total;
    const auto seen = static_cast<double>(counts[candidate.id]);
    statistic += (seen - expected) * (seen - expected) / expected;
    counted += counts[candidate.id];
  }
  EXPECT_EQ(counted, draws) << "a token outside of what is kept was drawn";
  return statistic;
}

TEST(SampleToken, DrawsFollowTheProbabilities) {
  const std::vector<float> logits = {0.3f, 2.0f, -1.0f, 0.3f, 1.1f, 0.0f, 1.9f, -0.4f, 0.7f, 1.0f};
  // The 99.9th percentile of chi-square with 9, 4, 4 and 5 degrees of freedom.
  EXPECT_LT(ChiSquare(logits, {.temperature = 1.0f, .seed = 7}, 40000), 27.9);
  EXPECT_LT(ChiSquare(logits, {.temperature = 0.6f, .top_k = 5, .seed = 8}, 40000), 18.5);
  EXPECT_LT(ChiSquare(logits, {.temperature = 1.0f, .top_p = 0.8f, .seed = 9}, 40000), 18.5);
  EXPECT_LT(ChiSquare(logits, {.temperature = 2.0f, .min_p = 0.55f, .seed = 10}, 40000), 20.6);
}

TEST(SampleToken, DependsOnSeedAndPositionAlone) {
  const std::vector<float> logits(1000, 0.0f);
  SamplingScratch scratch, other;
  const auto draw = [&](uint64_t seed, int64_t position, SamplingScratch& memory) {
    return SampleToken(logits, {}, position, {.temperature = 1.0f, .seed = seed}, memory).value();
  };
  const int32_t first = draw(5, 9, scratch);
  SampleToken(std::vector<float>(3, 1.0f), {}, 0, {.temperature = 1.0f}, scratch).value();
  EXPECT_EQ(draw(5, 9, scratch), first);
  EXPECT_EQ(draw(5, 9, other), first);
  EXPECT_NE(draw(6, 9, other), first);
  EXPECT_NE(draw(5 | uint64_t{1} << 40, 9, other), first);
  EXPECT_NE(draw(5, 10, other), first);
  EXPECT_NE(draw(5, 9 | int64_t{1} << 40, other), first);
}

TEST(SampleToken, GreedyTakesTheLowestIdOfTheMaximum) {
  SamplingScratch scratch;
  const std::vector<float> logits = {1.0f, 3.0f, -kInfinity, 3.0f};
  EXPECT_EQ(SampleToken(logits, {}, 0, {}, scratch).value(), 1);
  const std::vector<int32_t> history = {1};
  EXPECT_EQ(SampleToken(logits, history, 0, {.repetition_penalty = 1.1f}, scratch).value(), 3);
  // A temperature so small that the scaled maximum overflows.
  EXPECT_EQ(SampleToken(logits, {}, 0, {.temperature = 1e-38f}, scratch).value(), 1);
  EXPECT_EQ(SampleToken(std::vector<float>{-5.0f, -4.0f}, {}, 0, {.temperature = 1e-38f}, scratch).value(),
            1);
}

TEST(SampleToken, ATokenSeenTwiceIsPenalisedOnce) {
  SamplingScratch scratch;
  const std::vector<float> logits = {4.0f, 1.5f, -3.0f, -4.0f};
  const std::vector<int32_t> history = {0, 0, 0, 2, 2};
  SampleToken(logits, history, 0, {.repetition_penalty = 2.0f}, scratch).value();
  EXPECT_EQ(scratch.values, (std::vector<float>{2.0f, 1.5f, -6.0f, -4.0f}));
}

TEST(SampleToken, FiltersKeepAtLeastOneAndTiesTheLowestIds) {
  SamplingScratch scratch;
  const std::vector<float> logits = {1.0f, 2.0f, 2.0f, 2.0f, 2.0f};
  for (int64_t position = 0; position < 200; ++position) {
    EXPECT_EQ(SampleToken(logits, {}, position, {.temperature = 9.0f, .top_p = 1e-30f}, scratch).value(), 1);
    EXPECT_NE(SampleToken(logits, {}, position, {.temperature = 9.0f, .min_p = 1.0f}, scratch).value(), 0);
    EXPECT_EQ(SampleToken(logits, {}, position, {.temperature = 9.0f, .top_k = 1}, scratch).value(), 1);
    EXPECT_LE(SampleToken(logits, {}, position, {.temperature = 9.0f, .top_k = 2}, scratch).value(), 2);
    // Half of the four equal weights is exactly two of them.
    EXPECT_LE(
        SampleToken(logits, {}, position, {.temperature = 9.0f, .top_k = 4, .top_p = 0.5f}, scratch).value(),
        2);
  }
}

TEST(SampleToken, EveryFaultHasItsOwnMessage) {
  SamplingScratch scratch;
  const auto message = [&](std::vector<float> logits, std::vector<int32_t> history, SamplingOptions options) {
    const Result<int32_t> token = SampleToken(logits, history, 0, options, scratch);
    return token.has_value() ? std::string() : token.error().message;
  };
  for (float temperature : {0.0f, 1.0f}) {
    const SamplingOptions options = {.temperature = temperature, .repetition_penalty = 1.5f};
    EXPECT_EQ(message({}, {}, options), "logits: got 0 values, want at least 1");
    EXPECT_EQ(message({1.0f, kNan, 9.0f}, {}, options), "logits[1]: got NaN, want a number");
    EXPECT_EQ(message({1.0f, kInfinity}, {}, options), "logits[1]: got inf, want a finite number or -inf");
    EXPECT_EQ(message({-kInfinity, -kInfinity}, {}, options),
              "logits: got -inf for all 2 tokens, want one above");
    EXPECT_EQ(message({1.0f, 2.0f}, {0, 2}, options), "history[1]: got token id 2, want 0 to 1");
    EXPECT_EQ(message({1.0f, 2.0f}, {-1}, options), "history[0]: got token id -1, want 0 to 1");
  }
  std::vector<float> late(300, 1.0f);
  late[299] = kNan;
  EXPECT_EQ(message(late, {}, {}), "logits[299]: got NaN, want a number");
}

TEST(CheckSamplingOptions, NamesTheOption) {
  const std::vector<std::pair<SamplingOptions, std::string>> cases = {
      {{.temperature = -1.0f}, "temperature: got -1, want a number of at least 0"},
      {{.temperature = kNan}, "temperature: got nan, want a number of at least 0"},
      {{.temperature = kInfinity}, "temperature: got inf, want a number of at least 0"},
      {{.top_k = -1}, "top_k: got -1, want at least 0 (0: no limit)"},
      {{.top_p = 0.0f}, "top_p: got 0, want above 0 and at most 1"},
      {{.top_p = 1.5f}, "top_p: got 1.5, want above 0 and at most 1"},
      {{.min_p = -0.5f}, "min_p: got -0.5, want 0 to 1"},
      {{.min_p = kNan}, "min_p: got nan, want 0 to 1"},
      {{.repetition_penalty = 0.0f}, "repetition_penalty: got 0, want a number above 0"},
      {{.repetition_penalty = kInfinity}, "repetition_penalty: got inf, want a number above 0"}};
  EXPECT_TRUE(CheckSamplingOptions({}));
  for (const auto& [options, want] : cases) {
    const Status status = CheckSamplingOptions(options);
    ASSERT_FALSE(status) << want;
    EXPECT_EQ(status.error().message, want);
  }
}

}  // namespace
}  // namespace plumbline
