#include "plumbline/pipelines/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

#include "plumbline/pipelines/verify_requests.h"

namespace plumbline {
namespace {

TEST(Verify, NamesTheFirstDifference) {
  std::vector<VerifyAnswer> want(3);
  for (VerifyAnswer& answer : want) {
    for (auto& words : answer.words) words.assign(6, std::bit_cast<uint32_t>(-1.25f));
  }
  std::vector<VerifyAnswer> got = want;
  EXPECT_EQ(FirstDifference(got, want), "");
  got[2].words[kMaxLogits][0] = 0;
  got[1].words[0][4] ^= 1;  // one unit in the last place
  const std::string difference = FirstDifference(got, want);
  EXPECT_TRUE(difference.starts_with("log_probs: got -1.2500001 (0xbfa00001)")) << difference;
  EXPECT_TRUE(difference.ends_with("want -1.25 (0xbfa00000) (request 1, word 4)")) << difference;
  got = want;
  got[0].words[kGeneratedTokens][3] = 7;
  EXPECT_TRUE(FirstDifference(got, want).starts_with("generated_tokens: got 7, want "));
  got = want;
  got[0].words[kTopK].pop_back();
  EXPECT_EQ(FirstDifference(got, want), "top_k: got 5 words, want 6 (request 0)");
  // Zeros of either sign are equal as numbers, not as bits.
  want[0].words[kMaxLogits][0] = std::bit_cast<uint32_t>(0.0f);
  got = want;
  got[0].words[kMaxLogits][0] = std::bit_cast<uint32_t>(-0.0f);
  EXPECT_NE(FirstDifference(got, want), "");
  EXPECT_EQ(FirstDifference(got, want, /*observed=*/false), "");
  got[0].words[kMaxLogits].clear();
  EXPECT_EQ(FirstDifference(got, want, /*observed=*/false), "");
}

TEST(Verify, RefusesNanButNotIdsThatLookLikeOne) {
  const uint32_t nan = std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN());
  std::vector<VerifyAnswer> answers(1);
  answers[0].words[kTopK] = {nan, 0};          // an id, its log-prob
  answers[0].words[kGeneratedTokens] = {nan};  // a generated token
  EXPECT_TRUE(CheckNoNan(answers).has_value());
  answers[0].words[kTopK] = {0, nan};
  EXPECT_FALSE(CheckNoNan(answers).has_value());
  answers[0].words[kTopK] = {};
  answers[0].words[kHiddenStates] = {0, nan};
  EXPECT_FALSE(CheckNoNan(answers).has_value());
}

TEST(Verify, RequestsFitTheModelAndStayThemselvesAmongStrangers) {
  DecoderConfig config;
  config.vocab = 50;
  config.max_positions = 100;
  for (bool generate : {false, true}) {
    const VerifyRequests alone = MakeVerifyRequests(config, {}, generate, true);
    std::set<std::vector<int>> places;
    for (int64_t strangers : {1, 2, 7, 8, 31, 33}) {
      for (int64_t known : {int64_t{1}, int64_t{64}, VerifyCase::kWhole}) {
        const VerifyRequests mixed =
            MakeVerifyRequests(config, {.strangers = strangers, .known = known}, generate, true);
        ASSERT_EQ(mixed.requests.size(), alone.requests.size() + strangers);
        EXPECT_EQ(mixed.earlier.size(), 2u);  // of a page and more
        for (const Request& request : mixed.earlier) EXPECT_TRUE(CheckRequest(request, config).has_value());
        std::set<int> answers;
        for (size_t i = 0; i < mixed.requests.size(); ++i) {
          EXPECT_TRUE(CheckRequest(mixed.requests[i], config).has_value());
          const int answer = mixed.answer_of[i];
          if (answer < 0) continue;
          EXPECT_EQ(mixed.requests[i].tokens, alone.requests[answer].tokens);
          answers.insert(answer);
        }
        EXPECT_EQ(answers.size(), alone.requests.size());
        places.insert(mixed.answer_of);
      }
    }
    EXPECT_EQ(places.size(), 6u);
  }
}

TEST(Verify, EarlierRequestsShareWhatIsKnownAndNoMore) {
  DecoderConfig config;
  config.vocab = 50;
  config.max_positions = 500;
  for (int64_t known : {63, 64, 65}) {
    const VerifyRequests asked = MakeVerifyRequests(config, {.known = known}, false, false);
    const std::vector<int32_t>& one = asked.requests.back().tokens;
    const std::vector<int32_t>& before = asked.earlier.back().tokens;
    ASSERT_GT(static_cast<int64_t>(before.size()), known);
    EXPECT_EQ(std::ranges::mismatch(one, before).in1 - one.begin(), known);
  }
}

TEST(Verify, CasesCoverEveryAxis) {
  const DecoderConfig config{.layers = 2, .heads = 4, .kv_heads = 2};
  std::set<std::string> names;
  for (const VerifyCase& how : VerifyCases({.threads = 2}, config)) names.insert(how.axis + " " + how.value);
  EXPECT_EQ(names.size(), VerifyCases({.threads = 2}, config).size());
  for (const char* name : {"reference ",    "ranks tp 2",      "ranks tp 2 dp 2 cp 2",
                           "threads 1",     "threads 2",       "threads 3",
                           "threads 5",     "chunk 1",         "chunk 2",
                           "chunk 7",       "chunk 16",        "chunk 64",
                           "chunk all",     "strangers 1",     "strangers 2",
                           "strangers 7",   "strangers 8",     "strangers 31",
                           "strangers 33",  "strangers alone", "prefix cold",
                           "prefix full",   "prefix cut 63",   "prefix cut 64",
                           "prefix cut 65", "drafts 0",        "drafts 1",
                           "drafts 2",      "drafts 3",        "drafts 7",
                           "page 128",      "isa avx2",        "mix 1"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

}  // namespace
}  // namespace plumbline
