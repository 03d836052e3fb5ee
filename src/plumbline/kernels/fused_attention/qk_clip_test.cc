#include "plumbline/kernels/fused_attention/qk_clip.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace plumbline {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(QkClip, ClipsWhatPassesTheThresholdAndNothingElse) {
  EXPECT_EQ(QkClipGamma(400.0f, 100.0f), 0.25f);
  for (const float max : {100.0f, 99.0f, 1e-30f, 0.0f, -0.0f, -5.0f, -400.0f, -kInf, kInf, kNan}) {
    EXPECT_EQ(QkClipGamma(max, 100.0f), 1.0f) << max;
  }
  EXPECT_EQ(QkClipGamma(5.0f, 0.0f), 1.0f);
  EXPECT_EQ(QkClipGamma(5.0f, kNan), 1.0f);
}

TEST(QkClip, MhaSplitsTheFactorEvenly) {
  std::vector<float> factor = {400.0f, 50.0f, -kInf, kNan};
  QkClipMha(factor, 100.0f, factor);
  EXPECT_EQ(factor, (std::vector<float>{0.5f, 1.0f, 1.0f, 1.0f}));
}

TEST(QkClip, GqaLeavesOtherHeadsOfTheGroupAloneOrClipsTheGroup) {
  const std::vector<float> max = {400.0f, 50.0f, -3.0f, -kInf};
  std::vector<float> q(4), k(2);
  QkClipGqa(max, 100.0f, QkClipGqaBy::kQuery, q, k);
  EXPECT_EQ(q, (std::vector<float>{0.25f, 1.0f, 1.0f, 1.0f}));
  EXPECT_EQ(k, (std::vector<float>{1.0f, 1.0f}));
  QkClipGqa(max, 100.0f, QkClipGqaBy::kGroup, q, k);
  EXPECT_EQ(q, (std::vector<float>{0.5f, 0.5f, 1.0f, 1.0f}));
  EXPECT_EQ(k, (std::vector<float>{0.5f, 1.0f}));
}

TEST(QkClip, MlaLeavesTheSharedRotaryKeyAlone) {
  const std::vector<float> max = {400.0f, kNan};
  std::vector<QkClipMlaFactors> factors(2);
  QkClipMla(max, 100.0f, factors);
  EXPECT_EQ(factors[0].q_nope * factors[0].k_nope, 0.25f);
  EXPECT_EQ(factors[0].q_rope, 0.25f);
  EXPECT_EQ(factors[1].q_nope, 1.0f);
  EXPECT_EQ(factors[1].q_rope, 1.0f);
}

}  // namespace
}  // namespace plumbline
