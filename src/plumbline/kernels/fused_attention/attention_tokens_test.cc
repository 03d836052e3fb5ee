#include "plumbline/kernels/fused_attention/attention_tokens.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

using Ints = std::vector<int32_t>;

TEST(AttentionTokens, LengthsPadTheEnd) {
  const FusedTokens tokens = TokensFromLengths(Ints{2, 0, 3}, 3).value();
  EXPECT_EQ(tokens.segments, (Ints{1, 1, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(tokens.positions, (Ints{0, 1, 2, 0, 1, 2, 0, 1, 2}));
  EXPECT_FALSE(TokensFromLengths(Ints{4}, 3).has_value());
  EXPECT_FALSE(TokensFromLengths(Ints{-1}, 3).has_value());
}

TEST(AttentionTokens, OffsetsKeepSlotsApartInEveryRow) {
  // Row 0: 2 tokens, a gap, 1 token. Row 1: an empty slot, then 3 tokens as segment 2.
  const FusedTokens tokens =
      TokensFromOffsets(Ints{2, 1, -1, 0, 3, -1}, Ints{0, 3, -1, -1, 0, 1, -1, -1}, 2, 3, 4).value();
  EXPECT_EQ(tokens.segments, (Ints{1, 1, 0, 2, 0, 2, 2, 2}));
  EXPECT_EQ(tokens.positions, (Ints{0, 1, 0, 0, 0, 0, 1, 2}));
}

TEST(AttentionTokens, OffsetsMayNameTheEndOfTheLastSegmentOrNot) {
  const FusedTokens with = TokensFromOffsets(Ints{2, 1}, Ints{0, 2, 3}, 1, 2, 4).value();
  const FusedTokens without = TokensFromOffsets(Ints{2, 1}, Ints{0, 2, -1}, 1, 2, 4).value();
  EXPECT_EQ(with.segments, without.segments);
}

TEST(AttentionTokens, RefusesSlotsThatCannotBe) {
  EXPECT_EQ(TokensFromOffsets(Ints{3}, Ints{2, -1}, 1, 1, 4).error().message,
            "segment: got tokens 2 to 5, want 0 to 4 (batch row 0, slot 0)");
  EXPECT_EQ(TokensFromOffsets(Ints{2, 2}, Ints{0, 1, -1}, 1, 2, 4).error().message,
            "token 1: got segments 1 and 2, want one (batch row 0)");
  EXPECT_FALSE(TokensFromOffsets(Ints{2, 2}, Ints{0, 1}, 1, 2, 4).has_value());
  EXPECT_FALSE(TokensFromSegments(Ints{1, -2}, Ints{0, 1}).has_value());
  EXPECT_FALSE(TokensFromSegments(Ints{1, 2}, Ints{0}).has_value());
  EXPECT_FALSE(TokensFromMask(std::vector<uint8_t>(5), FusedMask::kPadding, 1, 2, 3).has_value());
}

TEST(AttentionTokens, MasksGiveLengthsByTheirType) {
  // 3 queries of which 2 count, 4 keys of which 3 count, causal on top.
  const std::vector<uint8_t> causal = {0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1};
  FusedTokenPair pair = TokensFromMask(causal, FusedMask::kPaddingCausal, 1, 3, 4).value();
  EXPECT_EQ(pair.q.segments, (Ints{1, 1, 0}));
  EXPECT_EQ(pair.kv.segments, (Ints{1, 1, 1, 0}));
  pair = TokensFromMask(causal, FusedMask::kPadding, 1, 3, 4).value();
  EXPECT_EQ(pair.kv.segments, (Ints{1, 0, 0, 0}));
}

TEST(AttentionTokens, BottomRightMovesEachSegmentByItsOwnExcess) {
  FusedTokenPair pair = {{{1, 1, 2, 3, 0}, {0, 1, 0, 0, 0}}, {{1, 2, 2, 2, 0}, {0, 0, 1, 2, 0}}};
  ResolveMask(FusedMask::kPaddingCausalBottomRight, 1, 5, 5, &pair);
  EXPECT_EQ(Ints(pair.q.positions.begin(), pair.q.positions.begin() + 4), (Ints{-1, 0, 2, -1}));
}

TEST(AttentionTokens, MasksWithoutPaddingIgnoreTheDescriptor) {
  FusedTokenPair pair = {TokensFromLengths(Ints{1}, 2).value(), TokensFromLengths(Ints{2}, 5).value()};
  ResolveMask(FusedMask::kCausalBottomRight, 1, 2, 5, &pair);
  EXPECT_EQ(pair.q.segments, (Ints{1, 1}));
  EXPECT_EQ(pair.q.positions, (Ints{3, 4}));
  EXPECT_EQ(pair.kv.segments, Ints(5, 1));
}

}  // namespace
}  // namespace plumbline
