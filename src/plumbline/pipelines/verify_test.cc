#include "plumbline/pipelines/verify.h"

#include <gtest/gtest.h>

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
  got[2].words[6][0] = 0;
  got[1].words[0][4] ^= 1;  // one unit in the last place
  const std::string difference = FirstDifference(got, want);
  EXPECT_TRUE(difference.starts_with("log_probs: got -1.2500001 (0xbfa00001)")) << difference;
  EXPECT_TRUE(difference.ends_with("want -1.25 (0xbfa00000) (request 1, word 4)")) << difference;
  got = want;
  got[0].words[5][3] = 7;
  EXPECT_TRUE(FirstDifference(got, want).starts_with("generated_tokens: got 7, want "));
  got = want;
  got[0].words[1].pop_back();
  EXPECT_EQ(FirstDifference(got, want), "top_k: got 5 words, want 6 (request 0)");
  // Zeros of either sign are equal as numbers, not as bits.
  want[0].words[2][0] = std::bit_cast<uint32_t>(0.0f);
  got = want;
  got[0].words[2][0] = std::bit_cast<uint32_t>(-0.0f);
  EXPECT_NE(FirstDifference(got, want), "");
}

TEST(Verify, RefusesNanButNotIdsThatLookLikeOne) {
  const uint32_t nan = std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN());
  std::vector<VerifyAnswer> answers(1);
  answers[0].words[1] = {nan, 0};  // an id, its log-prob
  answers[0].words[5] = {nan};     // a generated token
  EXPECT_TRUE(CheckNoNan(answers).has_value());
  answers[0].words[1] = {0, nan};
  EXPECT_FALSE(CheckNoNan(answers).has_value());
  answers[0].words[1] = {};
  answers[0].words[3] = {0, nan};
  EXPECT_FALSE(CheckNoNan(answers).has_value());
}

TEST(Verify, RequestsFitTheModelAndStayThemselvesAmongStrangers) {
  DecoderConfig config;
  config.vocab = 50;
  config.max_positions = 100;
  for (bool generate : {false, true}) {
    const VerifyRequests alone = MakeVerifyRequests(config, {}, generate);
    const VerifyRequests mixed = MakeVerifyRequests(config, {.strangers = true}, generate);
    EXPECT_EQ(mixed.requests.size(), alone.requests.size() + 33);
    size_t next = 0;
    for (size_t i = 0; i < mixed.requests.size(); ++i) {
      EXPECT_TRUE(CheckRequest(mixed.requests[i], config).has_value());
      if (mixed.answer_of[i] < 0) continue;
      EXPECT_EQ(mixed.answer_of[i], alone.answer_of[next]);
      EXPECT_EQ(mixed.requests[i].tokens, alone.requests[next].tokens);
      ++next;
    }
    EXPECT_EQ(next, alone.requests.size());
    const VerifyRequests few = MakeVerifyRequests(config, {.short_only = true}, generate);
    for (size_t i = 0; i < few.requests.size(); ++i) EXPECT_EQ(few.answer_of[i], static_cast<int>(i));
  }
}

TEST(Verify, CasesCoverEveryAxis) {
  std::set<std::string> names;
  for (const VerifyCase& how : VerifyCases({.threads = 2})) names.insert(how.name);
  EXPECT_EQ(names.size(), 19 + SupportedIsas().size());
  for (const char* name : {"reference", "threads 5", "chunk all", "batch 33", "page 128", "isa avx2"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

}  // namespace
}  // namespace plumbline
