// What must hold of fused attention whatever the numbers: padding, permutations, packing, shards, scaling,
// max_logit.
#include <numeric>

#include "plumbline/kernels/fused_attention/fused_attention_oracle.h"

namespace plumbline::fused_testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

KernelContext Context() {
  static ThreadPool pool(2);
  return {pool, SupportedIsas().back()};
}

bool AllZero(const std::vector<float>& values, size_t begin, size_t end) {
  return std::all_of(values.begin() + static_cast<int64_t>(begin), values.begin() + static_cast<int64_t>(end),
                     [](float x) { return std::bit_cast<uint32_t>(x) == 0; });
}

TEST(FusedAttentionLaws, MaxLogitChangesNoBit) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    World world({.shape = {dtype, 2, 100, 150, 4, 2, 24, 24}, .mask = FusedMask::kCausal});
    const Values without = world.Run(Context(), /*max_logit=*/false);
    Values with = world.Run(Context(), true);
    EXPECT_EQ(with.max_logit.size(), 4u);
    with.max_logit.clear();
    EXPECT_TRUE(SameBits(with, without));
  }
}

TEST(FusedAttentionLaws, WhatLiesInPaddingReachesNothing) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Case c = {.shape = {dtype, 3, 80, 100, 2, 1, 16, 16}, .mask = FusedMask::kPaddingCausal};
    c.tokens = {TokensFromLengths(std::vector<int32_t>{70, 0, 80}, 80).value(),
                TokensFromLengths(std::vector<int32_t>{71, 50, 0}, 100).value()};
    World poisoned(c);
    c.poison = false;
    World clean(c);
    Values values = poisoned.Run(Context());
    EXPECT_TRUE(SameBits(values, clean.Run(Context())));
    // Row 1 has no queries, row 2 no keys.
    const size_t row = 80 * 2 * 16;
    EXPECT_TRUE(AllZero(values.out, row, 3 * row));
    EXPECT_TRUE(AllZero(values.dq, row, 3 * row));
    EXPECT_TRUE(AllZero(values.dk, 100 * 16, values.dk.size()));
    EXPECT_TRUE(AllZero(values.dv, 100 * 16, values.dv.size()));
    for (size_t i = 160; i < values.lse.size(); ++i) EXPECT_EQ(values.lse[i], -kInf);
  }
}

TEST(FusedAttentionLaws, AHeadThatSeesNothingHasNoMaximum) {
  Case c = {.shape = {DType::kF32, 1, 5, 5, 2, 2, 4, 4}, .mask = FusedMask::kPadding};
  c.tokens = {TokensFromLengths(std::vector<int32_t>{5}, 5).value(),
              TokensFromLengths(std::vector<int32_t>{0}, 5).value()};
  c.options.softmax = FusedSoftmax::kLearnable;
  World world(c);
  const Values values = world.Run(Context());
  EXPECT_EQ(values.max_logit, (std::vector<float>{-kInf, -kInf}));
  EXPECT_EQ(values.lse[0], world.sink()[0]);
  EXPECT_TRUE(AllZero(values.out, 0, values.out.size()));
  EXPECT_EQ(values.d_sink[0], 0.0f);
}

TEST(FusedAttentionLaws, MaximaAreSignedAndNanIsNotSwallowed) {
  World world({.shape = {DType::kF32, 1, 70, 70, 2, 2, 4, 4}});
  for (int64_t t = 0; t < 70; ++t) {
    for (int64_t i = 0; i < 8; ++i) {
      world.Set(0, 0, t, i, 1.0f + static_cast<float>(t));
      world.Set(1, 0, t, i, -1.0f);
    }
  }
  EXPECT_EQ(world.Run(Context()).max_logit, (std::vector<float>{-2.0f, -2.0f}));
  world.Set(1, 0, 3, 5, std::numeric_limits<float>::quiet_NaN());  // head 1
  const std::vector<float> max = world.Run(Context()).max_logit;
  EXPECT_EQ(max[0], -2.0f);
  EXPECT_TRUE(std::isnan(max[1]));
}

TEST(FusedAttentionLaws, ALaterTokensNanStaysInItsOwnRows) {
  World world({.shape = {DType::kBF16, 1, 100, 100, 1, 1, 8, 8}, .mask = FusedMask::kCausal});
  const Values clean = world.Run(Context());
  for (int64_t i = 0; i < 8; ++i) {
    for (const int64_t member : {1, 2}) world.Set(member, 0, 77, i, std::numeric_limits<float>::quiet_NaN());
  }
  const Values values = world.Run(Context());
  for (size_t i = 0; i < 77 * 8; ++i) ASSERT_EQ(values.out[i], clean.out[i]) << i;
  for (size_t i = 77 * 8; i < 800; ++i) ASSERT_TRUE(std::isnan(values.out[i])) << i;
}

TEST(FusedAttentionLaws, ScalingQueriesByAPowerOfTwoScalesMaxima) {
  Case c = {.shape = {DType::kF32, 1, 60, 60, 3, 1, 8, 8}, .mask = FusedMask::kCausal};
  std::vector<float> once = World(c).Run(Context()).max_logit;
  c.spread = 4.0f;
  for (float& x : once) x *= 4.0f;
  EXPECT_EQ(World(c).Run(Context()).max_logit, once);
}

TEST(FusedAttentionLaws, LseLiesJustAboveTheMaximum) {
  World world({.shape = {DType::kF32, 1, 1, 50, 4, 4, 8, 8}});
  const Values values = world.Run(Context());
  for (int h = 0; h < 4; ++h) {
    EXPECT_LT(values.max_logit[h], values.lse[h]);
    EXPECT_GE(values.max_logit[h], values.lse[h] - std::log(50.0f));
  }
}

// Tokens of one side reordered, ids with them.
World Reordered(World world, const std::vector<int64_t>& order, bool keys) {
  const FusedTokens old = keys ? world.spec().tokens.kv : world.spec().tokens.q;
  FusedTokens& ids = keys ? world.spec().tokens.kv : world.spec().tokens.q;
  World from = world;
  const FusedAttentionShape& s = world.spec().shape;
  for (size_t t = 0; t < order.size(); ++t) {
    ids.segments[t] = old.segments[order[t]];
    ids.positions[t] = old.positions[order[t]];
    for (const int64_t member : keys ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{0, 3}) {
      const int64_t width = (keys ? s.kv_heads : s.heads) * (member < 2 ? s.qk_dim : s.v_dim);
      for (int64_t i = 0; i < width; ++i) {
        world.Set(member, 0, static_cast<int64_t>(t), i, from.Get(member, 0, order[t], i));
      }
    }
  }
  return world;
}

TEST(FusedAttentionLaws, WhereTokensLieChangesNoBit) {
  Case c = {.shape = {DType::kBF16, 1, 128, 128, 2, 1, 16, 16}, .mask = FusedMask::kPaddingCausal};
  c.tokens.q =
      TokensFromOffsets(std::vector<int32_t>{50, 70}, std::vector<int32_t>{0, 55, 128}, 1, 2, 128).value();
  c.tokens.kv = c.tokens.q;
  c.options.left = 40;
  World world(c);
  const Values want = world.Run(Context());
  // Dual chunks of four ranks, then stripes of one.
  std::vector<int64_t> chunks, stripes;
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (const int64_t chunk : {rank, 7 - rank}) {
      for (int64_t i = 0; i < 16; ++i) chunks.push_back(16 * chunk + i);
    }
    for (int64_t i = 0; i < 32; ++i) stripes.push_back(4 * i + rank);
  }
  for (const std::vector<int64_t>& order : {chunks, stripes}) {
    World moved = Reordered(Reordered(world, order, true), order, false);
    const Values values = moved.Run(Context());
    EXPECT_EQ(values.max_logit, want.max_logit);
    for (size_t t = 0; t < 128; ++t) {
      const auto same = [&](const std::vector<float>& a, const std::vector<float>& b, size_t width) {
        for (size_t i = 0; i < width; ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(a[t * width + i]),
                    std::bit_cast<uint32_t>(b[static_cast<size_t>(order[t]) * width + i]));
        }
      };
      same(values.out, want.out, 32);
      same(values.dq, want.dq, 32);
      same(values.dk, want.dk, 16);
      same(values.dv, want.dv, 16);
    }
  }
}

TEST(FusedAttentionLaws, APackedSegmentHasTheBitsItHasAlone) {
  Case c = {.shape = {DType::kF32, 1, 200, 200, 2, 2, 12, 12}, .mask = FusedMask::kPaddingCausal};
  c.tokens.q =
      TokensFromOffsets(std::vector<int32_t>{37, 150}, std::vector<int32_t>{0, 43, 200}, 1, 2, 200).value();
  c.tokens.kv = c.tokens.q;
  World packed(c);
  const Values want = packed.Run(Context());
  World alone({.shape = {DType::kF32, 1, 150, 150, 2, 2, 12, 12}, .mask = FusedMask::kCausal});
  for (int64_t t = 0; t < 150; ++t) {
    for (int64_t member = 0; member < 4; ++member) {
      for (int64_t i = 0; i < 24; ++i) alone.Set(member, 0, t, i, packed.Get(member, 0, 43 + t, i));
    }
  }
  const Values values = alone.Run(Context());
  const auto expect = [&](const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], b[43 * 24 + i]) << i;
  };
  expect(values.out, want.out);
  expect(values.dq, want.dq);
  expect(values.dk, want.dk);
  expect(values.dv, want.dv);
}

TEST(FusedAttentionLaws, DropoutOfAShardIsThatOfTheWhole) {
  Case c = {.shape = {DType::kF32, 2, 70, 90, 4, 4, 8, 8}};
  c.options.dropout.probability = 0.4f;
  c.options.dropout.seed[1] = 9;
  World whole(c);
  const Values want = whole.Run(Context());
  // Batch row 1, heads 2 and 3, query rows 30 on.
  Case part = c;
  part.shape = {DType::kF32, 1, 40, 90, 2, 2, 8, 8};
  part.options.dropout.batch_offset = 1;
  part.options.dropout.head_offset = 2;
  part.options.dropout.row_offset = 30;
  World shard(part);
  for (int64_t member = 0; member < 4; ++member) {
    const bool keys = member == 1 || member == 2;
    for (int64_t t = 0; t < (keys ? 90 : 40); ++t) {
      for (int64_t i = 0; i < 16; ++i)
        shard.Set(member, 0, t, i, whole.Get(member, 1, keys ? t : 30 + t, 16 + i));
    }
  }
  const Values values = shard.Run(Context());
  for (int64_t t = 0; t < 40; ++t) {
    for (int64_t i = 0; i < 16; ++i) {
      ASSERT_EQ(values.out[t * 16 + i], want.out[(70 + 30 + t) * 32 + 16 + i]);
    }
  }
}

TEST(FusedAttentionLaws, DropoutKeepsTheShareItShould) {
  FusedDropout dropout = {.probability = 0.3f, .seed = {5, 6}};
  int64_t kept = 0;
  constexpr int64_t kCount = 200000;
  for (int64_t n = 0; n < kCount; ++n) kept += FusedDropoutKeeps(dropout, 1, 2, n / 500, n % 500) ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(kept) / kCount, 0.7, 5 * std::sqrt(0.21 / kCount));
}

// A ring of two: each step sees half of the keys; outputs merge by lse, gradients of the steps add up.
TEST(FusedAttentionLaws, RingStepsMergeToTheWhole) {
  Case c = {.shape = {DType::kF32, 1, 96, 96, 2, 1, 16, 16}, .mask = FusedMask::kPaddingCausal};
  c.options.float32_results = true;
  World whole(c);
  const Oracle::Results oracle = Oracle(whole).Run();
  FusedAttentionShape shape = whole.spec().shape;
  shape.kv_tokens = 48;
  std::vector<float> out(96 * 32, 0.0f), lse(192, -kInf), grads(96 * 32, 0.0f);
  std::vector<std::vector<float>> step_lse(2, std::vector<float>(192)),
      step_out(2, std::vector<float>(96 * 32));
  FusedAttentionInputs inputs[2];
  for (int step = 0; step < 2; ++step) {
    FusedAttentionInputs& in = inputs[step] = whole.Inputs();
    // Stripes of one: every other key, from key `step` on.
    in.k.data = static_cast<const float*>(in.k.data) + step * in.k.token_stride;
    in.v.data = static_cast<const float*>(in.v.data) + step * in.v.token_stride;
    in.k.token_stride *= 2;
    in.v.token_stride *= 2;
    static std::vector<int32_t> positions[2];
    positions[step].clear();
    for (int32_t j = 0; j < 48; ++j) positions[step].push_back(2 * j + step);
    in.kv_ids = {whole.spec().tokens.kv.segments.data(), positions[step].data()};
    ASSERT_TRUE(FusedAttention(Context(), shape, whole.spec().options, in,
                               {.out = {step_out[step].data(), 0, 32, 16}, .lse = step_lse[step].data()})
                    .has_value());
  }
  for (int64_t t = 0; t < 96; ++t) {
    for (int64_t h = 0; h < 2; ++h) {
      const double a = step_lse[0][h * 96 + t], b = step_lse[1][h * 96 + t], top = std::max(a, b);
      const double sum = top + std::log(std::exp(a - top) + std::exp(b - top));
      lse[h * 96 + t] = static_cast<float>(sum);
      for (int64_t d = 0; d < 16; ++d) {
        const int64_t at = t * 32 + h * 16 + d;
        out[at] =
            static_cast<float>(std::exp(a - sum) * step_out[0][at] + std::exp(b - sum) * step_out[1][at]);
      }
    }
  }
  ExpectClose("out", out, oracle.values.out, oracle.sizes.out, 64 * 0x1p-24);
  std::vector<float> d_out;
  for (int64_t n = 0; n < 96 * 32; ++n) d_out.push_back(whole.Get(3, 0, n / 32, n % 32));
  for (const FusedAttentionInputs& in : inputs) {
    std::vector<float> dq(96 * 32), dk(48 * 16), dv(48 * 16);
    ASSERT_TRUE(
        FusedAttentionGrad(
            Context(), shape, whole.spec().options, in,
            {.out = {out.data(), 0, 32, 16}, .d_out = {d_out.data(), 0, 32, 16}, .lse = lse.data()},
            {.dq = {dq.data(), 0, 32, 16}, .dk = {dk.data(), 0, 16, 16}, .dv = {dv.data(), 0, 16, 16}})
            .has_value());
    for (size_t n = 0; n < grads.size(); ++n) grads[n] += dq[n];
  }
  ExpectClose("dq", grads, oracle.values.dq, oracle.sizes.dq, 64 * 0x1p-24);
}

}  // namespace
}  // namespace plumbline::fused_testing
