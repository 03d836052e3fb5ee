#include "plumbline/nn/context_attention.h"

#include <gtest/gtest.h>

#include <random>

#include "plumbline/kernels/attention/attention_test_util.h"
#include "plumbline/nn/rank_test_util.h"

namespace plumbline {
namespace {

constexpr int64_t kLayer = 1;

DecoderConfig Config(const AttentionShape& shape) {
  return {.hidden = 8,
          .layers = 2,
          .heads = shape.heads(),
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .intermediate = 256,
          .vocab = 10};
}

// The pages of all sequences that one rank holds, NaN where nothing is stored.
class RankPages {
 public:
  RankPages(const KvLayout& layout, const std::vector<TestSequence>& sequences, int rank, int ranks) {
    for (const TestSequence& sequence : sequences) {
      std::vector<void*>& pages = pages_.emplace_back();
      for (int64_t page = 0; page * layout.page_size < sequence.length; ++page) {
        if (page % ranks != rank) {
          pages.push_back(nullptr);
          continue;
        }
        storage_.emplace_back(layout.PageBytes(), '\xff');
        pages.push_back(storage_.back().data());
      }
    }
  }
  void* const* Of(int64_t sequence) const { return pages_[sequence].data(); }

 private:
  std::vector<std::vector<char>> storage_;
  std::vector<std::vector<void*>> pages_;
};

// One rank's steps over its pages.
Result<StepResult> RunStep(const RankContext& rank, const AttentionWorld& world,
                           const std::vector<TestSequence>& all, const RankPages& pages,
                           const std::vector<StepPart>& parts, ContextAttentionScratch& scratch) {
  const AttentionShape& shape = world.shape();
  const int64_t width = shape.heads() * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
  std::vector<float> q, k, v;
  std::vector<int32_t> offsets = {0}, lengths;
  std::vector<void* const*> page_lists;
  const auto append = [](std::vector<float>& to, const std::vector<float>& from, const StepPart& part,
                         int64_t columns) {
    to.insert(to.end(), from.begin() + part.begin * columns, from.begin() + part.end * columns);
  };
  for (const StepPart& part : parts) {
    append(q, all[part.sequence].q, part, width);
    append(k, all[part.sequence].k, part, kv_width);
    append(v, all[part.sequence].v, part, kv_width);
    offsets.push_back(offsets.back() + static_cast<int32_t>(part.end - part.begin));
    lengths.push_back(static_cast<int32_t>(part.begin));
    page_lists.push_back(pages.Of(part.sequence));
  }
  const int64_t rows = offsets.back();
  const PagedBatch batch{.row_offsets = offsets, .cache_lengths = lengths, .pages = page_lists};
  StoreKv(rank.kernel, world.layout(), batch, kLayer, {k.data(), rows, kv_width}, {v.data(), rows, kv_width});
  StepResult result;
  result.out.resize(rows * width);
  result.max_logit.assign(std::ssize(parts) * shape.heads(), -kAttentionTestInf);
  scratch.BeginStep();
  RETURN_IF_ERROR(ContextAttention(rank, world.layout(), batch, kLayer, shape.heads(),
                                   {q.data(), rows, width},
                                   {.scale = shape.ScaleUsed(),
                                    .window = shape.window,
                                    .softcap = shape.softcap,
                                    .max_logit = result.max_logit.data()},
                                   scratch, {result.out.data(), rows, width}));
  return result;
}

// Steps that run every sequence to its end, in chunks of random length, a random choice of them at a time.
std::vector<std::vector<StepPart>> RandomSteps(const std::vector<TestSequence>& sequences,
                                               std::mt19937& random) {
  std::vector<int64_t> done(sequences.size(), 0);
  std::vector<std::vector<StepPart>> steps;
  while (true) {
    std::vector<StepPart> parts;
    bool all_done = true;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const int64_t left = sequences[s].length - done[s];
      all_done = all_done && left == 0;
      if (left == 0 || random() % 4 == 0) continue;
      const int64_t rows =
          random() % 3 == 0 ? 1 : std::min<int64_t>(left, 1 + static_cast<int64_t>(random() % 150));
      parts.push_back({.sequence = static_cast<int64_t>(s), .begin = done[s], .end = done[s] + rows});
      done[s] += rows;
    }
    if (all_done) return steps;
    if (!parts.empty()) steps.push_back(std::move(parts));
  }
}

struct Case {
  AttentionShape shape;
  int64_t max_gathered_floats;
};

TEST(ContextAttentionTest, BitsAreThoseOfOneRankWhateverTheSlabs) {
  const Case cases[] = {
      {{.head_dim = 32, .kv_heads = 2, .group = 2}, kGatheredFloats},
      {{.head_dim = 32, .kv_heads = 2, .group = 2}, 1},
      {{.head_dim = 20, .kv_heads = 1, .group = 3, .page_size = 128, .compute = Compute::kF32, .window = 100},
       1},
      {{.head_dim = 16, .kv_heads = 3, .group = 1, .softcap = 3.0f}, 20000},
  };
  std::mt19937 random(29);
  for (const Case& c : cases) {
    const std::vector<TestSequence> sequences = {MakeSequence(c.shape, 400, 1), MakeSequence(c.shape, 3, 2),
                                                 MakeSequence(c.shape, 64, 3), MakeSequence(c.shape, 257, 4)};
    ThreadPool pool(2);
    const KernelContext context{pool, SupportedIsas().back()};
    AttentionWorld world(c.shape, sequences);
    const std::vector<std::vector<StepPart>> steps = RandomSteps(sequences, random);
    std::vector<StepResult> want;
    for (const auto& parts : steps) want.push_back(world.Step(context, parts));
    for (int cp : {1, 2, 3, 4}) {
      const Status status = RunOnRanks(Config(c.shape), {.cp = cp}, [&](const RankContext& rank) -> Status {
        const RankPages pages(world.layout(), sequences, rank.context.rank(), cp);
        ContextAttentionScratch scratch{.max_gathered_floats = c.max_gathered_floats};
        for (size_t i = 0; i < steps.size(); ++i) {
          ASSIGN_OR_RETURN(const StepResult got, RunStep(rank, world, sequences, pages, steps[i], scratch));
          EXPECT_TRUE(SameBits(got.out, want[i].out)) << "cp " << cp << ", step " << i;
          EXPECT_TRUE(SameBits(got.max_logit, want[i].max_logit)) << "cp " << cp << ", step " << i;
        }
        return {};
      });
      ASSERT_TRUE(status.has_value()) << status.error().message;
    }
  }
}

// No more than the bound is gathered where slabs of kMinSlabRows rows allow it.
TEST(ContextAttentionTest, SlabsKeepGatheredNodesWithinTheirBound) {
  const AttentionShape shape{.head_dim = 32, .kv_heads = 2, .group = 2};
  const std::vector<TestSequence> sequences = {MakeSequence(shape, 512, 1)};
  const AttentionWorld world(shape, sequences);
  const Status status = RunOnRanks(Config(shape), {.cp = 2}, [&](const RankContext& rank) -> Status {
    const RankPages pages(world.layout(), sequences, rank.context.rank(), 2);
    const std::vector<StepPart> all = {{.sequence = 0, .begin = 0, .end = 512}};
    ContextAttentionScratch whole, slabs{.max_gathered_floats = 60000};
    ASSIGN_OR_RETURN(const StepResult one, RunStep(rank, world, sequences, pages, all, whole));
    ASSIGN_OR_RETURN(const StepResult many, RunStep(rank, world, sequences, pages, all, slabs));
    EXPECT_TRUE(SameBits(many.out, one.out));
    EXPECT_GT(whole.gathered.bytes(), 60000 * 4);
    EXPECT_LE(slabs.gathered.bytes(), 60000 * 4);
    return {};
  });
  ASSERT_TRUE(status.has_value()) << status.error().message;
}

// Layers of one window share the plan of a slab; the next step makes its own.
TEST(ContextAttentionTest, AStepPlansEachSlabAndWindowOnce) {
  const AttentionShape shape{.head_dim = 32, .kv_heads = 2, .group = 2};
  const std::vector<TestSequence> sequences = {MakeSequence(shape, 512, 1)};
  const AttentionWorld world(shape, sequences);
  const Status status = RunOnRanks(Config(shape), {.cp = 2}, [&](const RankContext& rank) -> Status {
    const RankPages pages(world.layout(), sequences, rank.context.rank(), 2);
    const int64_t rows = 512, width = shape.heads() * shape.head_dim;
    const std::vector<int32_t> offsets = {0, static_cast<int32_t>(rows)}, lengths = {0};
    const std::vector<void* const*> page_lists = {pages.Of(0)};
    const PagedBatch batch{.row_offsets = offsets, .cache_lengths = lengths, .pages = page_lists};
    std::vector<float> out(rows * width);
    ContextAttentionScratch scratch{.max_gathered_floats = 60000};
    int64_t slabs = 0;
    for (int step = 0; step < 3; ++step) {
      scratch.BeginStep();
      for (const int64_t window : {0, 0, 100, 0, 100}) {
        RETURN_IF_ERROR(ContextAttention(rank, world.layout(), batch, kLayer, shape.heads(),
                                         {sequences[0].q.data(), rows, width},
                                         {.scale = shape.ScaleUsed(), .window = static_cast<int32_t>(window)},
                                         scratch, {out.data(), rows, width}));
      }
      if (step == 0) slabs = scratch.plans_made / 2;
      EXPECT_EQ(scratch.plans_made, 2 * slabs * (step + 1));
    }
    EXPECT_GT(slabs, 1);
    return {};
  });
  ASSERT_TRUE(status.has_value()) << status.error().message;
}

}  // namespace
}  // namespace plumbline
