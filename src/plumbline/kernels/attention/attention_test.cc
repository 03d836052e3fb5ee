#include "plumbline/kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "plumbline/kernels/attention/attention_kernels_of.h"
#include "plumbline/kernels/attention/attention_test_util.h"

namespace plumbline {
namespace {

// Positions just before, at and after the edges of blocks and pages; sequences without rows among them.
std::vector<TestSequence> RaggedSequences(const AttentionShape& shape) {
  std::vector<TestSequence> sequences;
  uint32_t seed = 1;
  for (int64_t length : {1, 63, 64, 65, 70, 129, 200, 330})
    sequences.push_back(MakeSequence(shape, length, ++seed));
  return sequences;
}

const std::vector<StepPart> kRaggedStep = {{0, 0, 1},     {1, 60, 63},  {2, 40, 40},   {2, 0, 64},
                                           {3, 64, 65},   {4, 1, 70},   {5, 127, 129}, {6, 199, 200},
                                           {6, 150, 150}, {7, 250, 330}};

void StorePrefixes(const KernelContext& context, AttentionWorld& world) {
  std::vector<StepPart> parts;
  for (const StepPart& part : kRaggedStep) {
    if (part.begin < part.end) parts.push_back({part.sequence, 0, part.begin});
  }
  world.Store(context, parts);
}

// Every instruction set and thread count against the twin.
void ExpectTwin(AttentionWorld& world, const std::vector<StepPart>& parts) {
  const StepResult want = world.Twin(parts);
  for (Isa isa : SupportedIsas()) {
    for (int threads : {1, 2, 3, 5}) {
      ThreadPool pool(threads);
      const StepResult got = world.Attend({pool, isa}, parts);
      ASSERT_TRUE(SameBits(got.out, want.out)) << Name(isa) << ", " << threads << " threads";
      ASSERT_TRUE(SameBits(got.max_logit, want.max_logit)) << Name(isa) << ", " << threads << " threads";
    }
  }
}

class AttentionShapes : public ::testing::TestWithParam<AttentionShape> {};

TEST_P(AttentionShapes, MatchesTheTwin) {
  const AttentionShape shape = GetParam();
  for (Isa isa : SupportedIsas()) {
    AttentionWorld world(shape, RaggedSequences(shape));
    ThreadPool pool(2);
    StorePrefixes({pool, isa}, world);
    world.Store({pool, isa}, kRaggedStep);
    if (isa == SupportedIsas().back()) {
      ExpectTwin(world, kRaggedStep);
    } else {
      const StepResult got = world.Attend({pool, isa}, kRaggedStep);
      ASSERT_TRUE(SameBits(got.out, world.Twin(kRaggedStep).out)) << "stored with " << Name(isa);
    }
  }
}

std::vector<AttentionShape> Shapes() {
  std::vector<AttentionShape> shapes;
  for (Compute compute : {Compute::kBf16, Compute::kF32}) {
    for (int64_t head_dim : {1, 7, 64, 80}) {
      shapes.push_back({.head_dim = head_dim, .group = 3, .compute = compute});
    }
    shapes.push_back({.head_dim = 128, .kv_heads = 1, .group = 8, .page_size = 128, .compute = compute});
    shapes.push_back({.head_dim = 33, .kv_heads = 3, .page_size = 128, .compute = compute});
    shapes.push_back({.head_dim = 256, .kv_heads = 1, .compute = compute});
    shapes.push_back({.head_dim = 8, .kv_heads = 1, .group = 71, .compute = compute});
    for (int32_t window : {1, 2, 17, 64, 100}) {
      shapes.push_back(
          {.head_dim = 16, .group = 3, .compute = compute, .window = window, .sinks = window % 2 == 0});
    }
    shapes.push_back({.head_dim = 24, .group = 2, .compute = compute, .softcap = 1.5f, .scale = 0.7f});
    shapes.push_back(
        {.head_dim = 20, .group = 2, .compute = compute, .window = 80, .softcap = 50.0f, .sinks = true});
  }
  return shapes;
}

// Long enough to be cut into chunks of blocks that different threads reduce.
TEST(Attention, LongContextsAreCutAndMergedInTheSameTree) {
  for (int32_t window : {0, 1500, 700}) {
    const AttentionShape shape = {.head_dim = 16, .kv_heads = 1, .group = 2, .window = window};
    for (int64_t length : {1023, 1025, 2200}) {
      AttentionWorld world(shape, {MakeSequence(shape, length, 3), MakeSequence(shape, 300, 4)});
      ThreadPool pool(2);
      world.Store({pool, SupportedIsas().back()}, {{0, 0, length}, {1, 0, 300}});
      ExpectTwin(world, {{0, length - 1, length}});
      ExpectTwin(world, {{0, length - 3, length}, {1, 200, 300}});
    }
  }
}

TEST(AttentionKernels, ReduceStaysWithinItsScratch) {
  constexpr int64_t kRows = 3, kHeadDim = 20, kLastBlock = 70, kSentinels = 64;
  const KvLayout layout = {.layers = 1, .kv_heads = 1, .head_dim = kHeadDim};
  const std::vector<float> block(layout.BlockBytes() / 4), q(kRows * kHeadDim);
  const std::vector<const void*> pages(kLastBlock + 1, block.data());
  const AttentionRows rows = {.rows = kRows,
                              .group = kRows,
                              .head_dim = kHeadDim,
                              .first_position = kLastBlock * 64 + 5,
                              .window = 0,
                              .scale = 1.0f,
                              .softcap = 0.0f,
                              .q = q.data(),
                              .q_stride = kRows * kHeadDim,
                              .pages = pages.data(),
                              .blocks_per_page = 1,
                              .block_offset = 0,
                              .block_bytes = layout.BlockBytes()};
  for (Isa isa : SupportedIsas()) {
    for (int64_t begin = 0; begin <= kLastBlock; ++begin) {
      const int64_t floats = AttentionScratchFloats(kRows, kHeadDim, kLastBlock + 1 - begin);
      std::vector<float> scratch(floats + kSentinels, 99.0f);
      const float* node = AttentionKernelsOf(isa).reduce_bf16(rows, begin, kLastBlock + 1, scratch.data());
      ASSERT_GE(node, scratch.data());
      for (int64_t i = 0; i < kSentinels; ++i)
        ASSERT_EQ(scratch[floats + i], 99.0f) << "from block " << begin;
    }
  }
}

TEST(Attention, MaxLogitAccumulatesIntoWhatIsThere) {
  const AttentionShape shape = {.head_dim = 8, .kv_heads = 1, .group = 3};
  TestSequence sequence = MakeSequence(shape, 10, 1);
  KvLayout layout = {.layers = 1, .kv_heads = 1, .head_dim = 8};
  std::vector<float> page(layout.PageBytes() / 4), out(10 * 24);
  void* pages[] = {page.data()};
  void* const* tables[] = {pages};
  const int32_t offsets[] = {0, 10}, lengths[] = {0};
  const PagedBatch batch = {offsets, lengths, tables};
  ThreadPool pool(1);
  const KernelContext context = {pool, SupportedIsas().back()};
  StoreKv(context, layout, batch, 0, {sequence.k.data(), 10, 8}, {sequence.v.data(), 10, 8});
  std::vector<float> max_logit = {1000.0f, -kAttentionTestInf, kAttentionTestNan};
  Attention(context, layout, batch, 0, 3, {sequence.q.data(), 10, 24}, {.max_logit = max_logit.data()},
            {out.data(), 10, 24});
  EXPECT_EQ(max_logit[0], 1000.0f);
  EXPECT_TRUE(std::isfinite(max_logit[1]));
  EXPECT_TRUE(std::isnan(max_logit[2]));
}

INSTANTIATE_TEST_SUITE_P(All, AttentionShapes, ::testing::ValuesIn(Shapes()));

}  // namespace
}  // namespace plumbline
