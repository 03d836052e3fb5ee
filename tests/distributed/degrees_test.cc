// Every product of tensor, data, pipeline and context parallel degrees up to 8 ranks, with experts cut like
// dense layers or over ranks, gives one rank's bits: log-probs, top-k, hidden states, attention maxima,
// generated tokens; with strangers in flight, chunks, prefixes and drafts.
#include <gtest/gtest.h>

#include <filesystem>

#include "../golden/golden_files.h"
#include "plumbline/pipelines/engine_test_util.h"
#include "plumbline/pipelines/verify_requests.h"

namespace plumbline {
namespace {

std::vector<ParallelDegrees> AllDegrees(const DecoderConfig& config, int most) {
  std::vector<ParallelDegrees> all;
  for (int tp = 1; tp <= most; ++tp) {
    for (int dp = 1; tp * dp <= most; ++dp) {
      for (int pp = 1; tp * dp * pp <= most; ++pp) {
        for (int cp = 1; tp * dp * pp * cp <= most; ++cp) {
          ParallelDegrees degrees{.tp = tp, .dp = dp, .pp = pp, .cp = cp};
          if (degrees.Ranks() > 1 && CheckDegrees(config, degrees)) all.push_back(degrees);
          degrees.ep = tp * dp;
          if (degrees.ep > 1 && CheckDegrees(config, degrees)) all.push_back(degrees);
        }
      }
    }
  }
  return all;
}

struct Subject {
  std::string model;
  Compute compute;
  int most;  // ranks
};

class Degrees : public testing::TestWithParam<Subject> {};

TEST_P(Degrees, EveryProductGivesOneRanksBits) {
  const auto& [model, compute, most] = GetParam();
  const std::unique_ptr<Runtime> one = LoadTiny(model, 1, compute);
  ASSERT_NE(one, nullptr);
  VerifyCase how{.axis = "ranks",
                 .value = "",
                 .threads = 1,
                 .isa = one->options().isa,
                 .chunk_size = 40,
                 .strangers = 3,
                 .known = 65,
                 .drafts = 2};
  for (const bool observed : {true, false}) {
    how.known = observed ? std::optional<int64_t>() : 65;
    const Result<VerifyAnswers> want = RunVerifyCase(*one, how, observed, nullptr);
    ASSERT_TRUE(want.has_value()) << want.error().message;
    int compared = 0;
    for (const ParallelDegrees& degrees : AllDegrees(one->config(), most)) {
      SCOPED_TRACE(fmt::format("tp {} dp {} pp {} cp {} ep {}, observed {}", degrees.tp, degrees.dp,
                               degrees.pp, degrees.cp, degrees.ep, observed));
      const auto ranks = one->With(degrees, 1);
      ASSERT_TRUE(ranks.has_value()) << ranks.error().message;
      const Result<VerifyAnswers> got = RunVerifyCase(**ranks, how, observed, nullptr);
      ASSERT_TRUE(got.has_value()) << got.error().message;
      EXPECT_EQ(FirstDifference(got->scored, want->scored, observed), "");
      EXPECT_EQ(FirstDifference(got->generated, want->generated, observed), "");
      ++compared;
    }
    EXPECT_GE(compared, 10);
  }
}

// Two KV heads of four query heads (several ranks share one), one KV head, as many as query heads;
// K-quantised weights whose leaves no head falls between; experts narrower than a leaf, and of two.
INSTANTIATE_TEST_SUITE_P(
    Models, Degrees,
    testing::Values(Subject{"llama3", Compute::kBf16, 8}, Subject{"qwen3", Compute::kF32, 6},
                    Subject{"smollm2", Compute::kBf16, 6}, Subject{"llama2", Compute::kBf16, 4},
                    Subject{"mistral", Compute::kBf16, 4},
                    Subject{"gguf_llama_k/model.gguf", Compute::kBf16, 4},
                    Subject{"gguf_llama_k/model.gguf", Compute::kInt8, 4},
                    Subject{"qwen3_moe", Compute::kF32, 6}, Subject{"mixtral", Compute::kBf16, 4},
                    Subject{"gguf_qwen3moe/model.gguf", Compute::kInt8, 4}),
    [](const auto& info) {
      const std::string& model = info.param.model;
      return fmt::format("{}_{}", model.substr(0, model.find('/')), Name(info.param.compute));
    });

TEST(ExpertDegrees, ARankHoldsItsExpertsAlone) {
  const std::unique_ptr<Runtime> one = LoadTiny("qwen3_moe", 1, Compute::kBf16);
  ASSERT_NE(one, nullptr);
  const auto experts = [](const Runtime& runtime) {
    return std::ssize(runtime.decoder().layers->back().experts.experts);
  };
  EXPECT_EQ(experts(*one), 9);
  EXPECT_EQ(experts(**one->With({.tp = 2}, 1)), 9);
  EXPECT_EQ(experts(**one->With({.tp = 2, .dp = 2, .ep = 4}, 1)), 3);
  // Replicas share nothing of their layers then: more of everything else, but each expert once.
  const auto weights = [&](const ParallelDegrees& degrees) {
    return (*one->With(degrees, 1))->WeightBytes();
  };
  const int64_t experts_bytes = [&] {
    int64_t bytes = 0;
    for (const DecoderLayer& layer : *one->decoder().layers) {
      for (const auto& expert : layer.experts.experts)
        bytes +=
            expert.gate_proj.weight.bytes() + expert.up_proj.weight.bytes() + expert.down_proj.WeightBytes();
    }
    return bytes;
  }();
  EXPECT_LT(weights({.dp = 2, .ep = 2}), 2 * one->WeightBytes() - experts_bytes + 1);
}

}  // namespace
}  // namespace plumbline
