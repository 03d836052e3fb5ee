// A row's bits depend on its own allowed keys and nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "plumbline/kernels/attention/attention_test_util.h"

namespace plumbline {
namespace {

constexpr AttentionShape kShapes[] = {
    {.head_dim = 64, .group = 3},
    {.head_dim = 16, .group = 3, .compute = Compute::kF32},
    {.head_dim = 24, .kv_heads = 1, .group = 8, .page_size = 128, .window = 70, .sinks = true},
    {.head_dim = 9, .compute = Compute::kF32, .window = 33, .softcap = 2.0f},
};

class AttentionInvariance : public ::testing::TestWithParam<AttentionShape> {
 protected:
  AttentionInvariance() : pool_(3), context_{pool_, SupportedIsas().back()} {}

  std::vector<float> RowsOf(const std::vector<float>& out, int64_t begin, int64_t end) const {
    const int64_t cols = GetParam().heads() * GetParam().head_dim;
    return {out.begin() + begin * cols, out.begin() + end * cols};
  }

  ThreadPool pool_;
  const KernelContext context_;
};

TEST_P(AttentionInvariance, ChunksOfAnySize) {
  constexpr int64_t kLength = 203;
  const TestSequence sequence = MakeSequence(GetParam(), kLength, 5);
  const StepResult whole = AttentionWorld(GetParam(), {sequence}).Step(context_, {{0, 0, kLength}});
  for (int64_t chunk : {1, 2, 7, 16, 64, 100}) {
    AttentionWorld world(GetParam(), {sequence});
    StepResult pieces;
    pieces.max_logit.assign(GetParam().heads(), -kAttentionTestInf);
    for (int64_t begin = 0; begin < kLength; begin += chunk) {
      const StepResult piece = world.Step(context_, {{0, begin, std::min(kLength, begin + chunk)}});
      pieces.out.insert(pieces.out.end(), piece.out.begin(), piece.out.end());
      for (int64_t h = 0; h < GetParam().heads(); ++h) {
        pieces.max_logit[h] = std::max(pieces.max_logit[h], piece.max_logit[h]);
      }
    }
    EXPECT_TRUE(SameBits(pieces.out, whole.out)) << "chunks of " << chunk;
    EXPECT_TRUE(SameBits(pieces.max_logit, whole.max_logit)) << "chunks of " << chunk;
  }
}

TEST_P(AttentionInvariance, OtherSequences) {
  std::vector<TestSequence> sequences;
  for (int64_t length : {90, 300, 65}) {
    sequences.push_back(MakeSequence(GetParam(), length, static_cast<uint32_t>(length)));
  }
  std::fill(sequences[0].k.begin(), sequences[0].k.end(), kAttentionTestNan);
  std::fill(sequences[0].v.begin(), sequences[0].v.end(), kAttentionTestInf);
  AttentionWorld world(GetParam(), sequences);
  world.Store(context_, {{0, 0, 90}, {1, 0, 300}, {2, 0, 65}});
  const StepResult alone = world.Attend(context_, {{1, 260, 300}});
  for (float x : alone.out) ASSERT_TRUE(std::isfinite(x));
  const StepResult first = world.Attend(context_, {{1, 260, 300}, {0, 30, 90}, {2, 64, 65}});
  const StepResult last = world.Attend(context_, {{2, 0, 65}, {0, 89, 90}, {1, 260, 300}});
  EXPECT_TRUE(SameBits(RowsOf(first.out, 0, 40), alone.out));
  EXPECT_TRUE(SameBits(RowsOf(last.out, 66, 106), alone.out));
  const int64_t heads = GetParam().heads();
  EXPECT_TRUE(SameBits({first.max_logit.begin(), first.max_logit.begin() + heads}, alone.max_logit));
  EXPECT_TRUE(SameBits({last.max_logit.begin() + 2 * heads, last.max_logit.end()}, alone.max_logit));
}

// Every later key of the step holds garbage, in turn for rows that end on either half of a pair.
TEST_P(AttentionInvariance, KeysARowMayNotSee) {
  constexpr int64_t kLength = 150;
  const TestSequence clean = MakeSequence(GetParam(), kLength, 6);
  const StepResult want = AttentionWorld(GetParam(), {clean}).Step(context_, {{0, 0, kLength}});
  for (int64_t cut : {1, 2, 40, 63, 64, 65, 70, 129, 149}) {
    for (float garbage : {kAttentionTestNan, kAttentionTestInf, -3e38f}) {
      TestSequence sequence = clean;
      std::fill(sequence.k.begin() + cut * GetParam().kv_heads * GetParam().head_dim, sequence.k.end(),
                garbage);
      std::fill(sequence.v.begin() + cut * GetParam().kv_heads * GetParam().head_dim, sequence.v.end(),
                garbage);
      const StepResult got = AttentionWorld(GetParam(), {sequence}).Step(context_, {{0, 0, kLength}});
      ASSERT_TRUE(SameBits(RowsOf(got.out, 0, cut), RowsOf(want.out, 0, cut))) << "garbage from " << cut;
    }
  }
}

TEST_P(AttentionInvariance, KeysBeforeTheWindow) {
  AttentionShape shape = GetParam();
  if (shape.window == 0) shape.window = 70;
  constexpr int64_t kLength = 220;
  const TestSequence clean = MakeSequence(shape, kLength, 6);
  const StepResult want = AttentionWorld(shape, {clean}).Step(context_, {{0, 0, kLength}});
  for (int64_t garbage_end : {1, 2, 50, 64, 101, 130}) {
    TestSequence sequence = clean;
    const int64_t count = garbage_end * shape.kv_heads * shape.head_dim;
    std::fill(sequence.k.begin(), sequence.k.begin() + count, kAttentionTestNan);
    std::fill(sequence.v.begin(), sequence.v.begin() + count, kAttentionTestNan);
    const StepResult got = AttentionWorld(shape, {sequence}).Step(context_, {{0, 0, kLength}});
    const int64_t first = garbage_end - 1 + shape.window;  // whose window begins after the garbage
    ASSERT_TRUE(SameBits(RowsOf(got.out, first, kLength), RowsOf(want.out, first, kLength))) << garbage_end;
  }
}

// What a rejected draft stored stays behind the row and is never seen.
TEST_P(AttentionInvariance, StaleKeys) {
  const TestSequence sequence = MakeSequence(GetParam(), 120, 8);
  AttentionWorld fresh(GetParam(), {sequence});
  fresh.Store(context_, {{0, 0, 97}});
  const StepResult want = fresh.Attend(context_, {{0, 95, 97}});
  AttentionWorld drafted(GetParam(), {sequence});
  std::fill(drafted.sequences()[0].k.begin() + 95 * GetParam().kv_heads * GetParam().head_dim,
            drafted.sequences()[0].k.end(), kAttentionTestNan);
  drafted.Store(context_, {{0, 0, 120}});
  drafted.sequences()[0] = sequence;
  EXPECT_TRUE(SameBits(drafted.Step(context_, {{0, 95, 97}}).out, want.out));
}

TEST_P(AttentionInvariance, MaxLogitChangesNoBit) {
  AttentionWorld world(GetParam(), {MakeSequence(GetParam(), 180, 9)});
  const StepResult with = world.Step(context_, {{0, 0, 180}});
  EXPECT_TRUE(SameBits(world.Attend(context_, {{0, 0, 180}}, false).out, with.out));
}

INSTANTIATE_TEST_SUITE_P(All, AttentionInvariance, ::testing::ValuesIn(kShapes));

}  // namespace
}  // namespace plumbline
