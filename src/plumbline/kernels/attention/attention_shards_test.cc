#include "plumbline/kernels/attention/attention_shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plumbline/kernels/attention/attention_kernels.h"
#include "plumbline/kernels/attention/attention_test_util.h"
#include "plumbline/kernels/count_allocations.h"

namespace plumbline {
namespace {

constexpr int64_t kLayer = 1;  // the one AttentionWorld uses
constexpr float kUntouched = 12345.0f;

// A step as every rank sees it, and each rank's pages: its own, NaN until something is stored, and null.
class ShardedWorld {
 public:
  ShardedWorld(AttentionWorld& world, const std::vector<StepPart>& parts, int ranks)
      : world_(world), parts_(parts), pages_(ranks) {
    const KvLayout& layout = world.layout();
    for (int rank = 0; rank < ranks; ++rank) {
      for (const TestSequence& sequence : world.sequences()) {
        std::vector<void*> pages;
        for (int64_t i = 0; i * layout.page_size < std::max<int64_t>(1, sequence.length); ++i) {
          void* page = nullptr;
          if (i % ranks == rank) {
            storage_.emplace_back(layout.PageBytes(), static_cast<char>(0xff));
            page = storage_.back().data();
          }
          pages.push_back(page);
        }
        pages_[rank].push_back(std::move(pages));
      }
    }
    options_ = {.scale = world.shape().ScaleUsed(),
                .window = world.shape().window,
                .softcap = world.shape().softcap,
                .sinks = world.shape().sinks ? world.sinks().data() : nullptr};
    const int64_t cols = world.shape().heads() * world.shape().head_dim;
    for (const StepPart& part : parts) {
      const std::vector<float>& all = world.sequences()[part.sequence].q;
      q_.insert(q_.end(), all.begin() + part.begin * cols, all.begin() + part.end * cols);
    }
    rows_ = static_cast<int64_t>(q_.size()) / cols;
  }

  int ranks() const { return static_cast<int>(pages_.size()); }
  AttentionShardPlan& plan() { return plan_; }

  // All keys of the step's sequences up to its end, in one step of their own.
  void Store(const KernelContext& context) {
    std::vector<StepPart> parts;
    std::vector<float> k, v;
    const int64_t cols = world_.shape().kv_heads * world_.shape().head_dim;
    for (size_t b = 0; b < world_.sequences().size(); ++b) {
      const TestSequence& sequence = world_.sequences()[b];
      parts.push_back({static_cast<int64_t>(b), 0, sequence.length});
      k.insert(k.end(), sequence.k.begin(), sequence.k.end());
      v.insert(v.end(), sequence.v.begin(), sequence.v.end());
    }
    const auto rows = static_cast<int64_t>(k.size()) / cols;
    for (int rank = 0; rank < ranks(); ++rank) {
      SetBatch(parts, rank);
      StoreKv(context, world_.layout(), batch_, kLayer, {k.data(), rows, cols}, {v.data(), rows, cols});
    }
  }

  void Prepare() {
    SetBatch(parts_, 0);
    MakeAttentionShardPlan(world_.layout(), batch_, world_.shape().heads(), options_.window, ranks(), &plan_);
    gathered_.assign(plan_.rank_offsets.back() + 1, kUntouched);
    result_.out.assign(q_.size(), kUntouched);
    result_.max_logit.assign(parts_.size() * world_.shape().heads(), -kAttentionTestInf);
    options_.max_logit = result_.max_logit.data();
  }

  void Partials(const KernelContext& context, int rank) {
    SetBatch(parts_, rank);
    const std::span<float> own =
        std::span(gathered_).subspan(plan_.rank_offsets[rank], plan_.RankFloats(rank));
    AttentionPartials(context, world_.layout(), batch_, plan_, rank, kLayer, Q(), options_, own);
  }

  void Finish(const KernelContext& context) {
    AttentionFromPartials(context, plan_, options_, gathered_, {result_.out.data(), rows_, Q().cols});
  }

  const StepResult& Attend(const KernelContext& context) {
    Prepare();
    for (int rank = 0; rank < ranks(); ++rank) Partials(context, rank);
    EXPECT_EQ(gathered_.back(), kUntouched);
    Finish(context);
    return result_;
  }

 private:
  MatrixView<const float> Q() const {
    return {q_.data(), rows_, world_.shape().heads() * world_.shape().head_dim};
  }

  void SetBatch(const std::vector<StepPart>& parts, int rank) {
    offsets_.assign(1, 0);
    lengths_.clear();
    tables_.clear();
    for (const StepPart& part : parts) {
      offsets_.push_back(offsets_.back() + static_cast<int32_t>(part.end - part.begin));
      lengths_.push_back(static_cast<int32_t>(part.begin));
      tables_.push_back(pages_[rank][part.sequence].data());
    }
    batch_ = {.row_offsets = offsets_, .cache_lengths = lengths_, .pages = tables_};
  }

  AttentionWorld& world_;
  const std::vector<StepPart> parts_;
  std::vector<std::vector<char>> storage_;
  std::vector<std::vector<std::vector<void*>>> pages_;  // [ranks][sequences][pages]
  AttentionOptions options_;
  std::vector<float> q_, gathered_;
  int64_t rows_ = 0;
  std::vector<int32_t> offsets_, lengths_;
  std::vector<void* const*> tables_;
  PagedBatch batch_;
  AttentionShardPlan plan_;
  StepResult result_;
};

// Decoding, drafts and prefill behind edges of blocks and pages, whole sequences, none.
const std::vector<int64_t> kLengths = {1, 64, 65, 200, 330, 900};
const std::vector<StepPart> kStep = {{0, 0, 1},     {1, 63, 64}, {2, 40, 40},   {2, 64, 65},  {3, 0, 200},
                                     {4, 325, 330}, {4, 90, 90}, {5, 897, 900}, {5, 120, 131}};

std::vector<TestSequence> Sequences(const AttentionShape& shape) {
  std::vector<TestSequence> sequences;
  for (int64_t length : kLengths) {
    sequences.push_back(MakeSequence(shape, length, static_cast<uint32_t>(length)));
  }
  return sequences;
}

std::vector<AttentionShape> Shapes() {
  std::vector<AttentionShape> shapes;
  for (Compute compute : {Compute::kBf16, Compute::kF32}) {
    for (int64_t page_size : {64, 128, 192, 256}) {
      shapes.push_back({.head_dim = 20, .group = 3, .page_size = page_size, .compute = compute});
      shapes.push_back({.head_dim = 64,
                        .kv_heads = 1,
                        .group = 2,
                        .page_size = page_size,
                        .compute = compute,
                        .window = 130,
                        .softcap = 1.5f,
                        .sinks = true});
    }
    shapes.push_back({.head_dim = 8, .kv_heads = 1, .group = 71, .compute = compute, .sinks = true});
    shapes.push_back({.head_dim = 9, .page_size = 192, .compute = compute, .window = 1});
  }
  return shapes;
}

class AttentionShards : public ::testing::TestWithParam<AttentionShape> {};

TEST_P(AttentionShards, GiveTheBitsOfAttentionOverAllPages) {
  AttentionWorld world(GetParam(), Sequences(GetParam()));
  ThreadPool one(1), two(2), five(5);
  std::vector<StepPart> whole;
  for (size_t b = 0; b < kLengths.size(); ++b) whole.push_back({static_cast<int64_t>(b), 0, kLengths[b]});
  const KernelContext best = {two, SupportedIsas().back()};
  world.Store(best, whole);
  const StepResult want = world.Attend(best, kStep);
  for (float x : want.out) ASSERT_TRUE(std::isfinite(x));
  for (int ranks : {1, 2, 3, 4, 8}) {
    ShardedWorld sharded(world, kStep, ranks);
    sharded.Store(best);
    for (Isa isa : SupportedIsas()) {
      for (ThreadPool* pool : {&one, &two, &five}) {
        const StepResult& got = sharded.Attend({*pool, isa});
        ASSERT_TRUE(SameBits(got.out, want.out)) << ranks << " ranks, " << Name(isa);
        ASSERT_TRUE(SameBits(got.max_logit, want.max_logit)) << ranks << " ranks, " << Name(isa);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionShards, ::testing::ValuesIn(Shapes()));

TEST(AttentionShards, HostileScoresComeOutAsTheyDoWhole) {
  const AttentionShape shape = {.head_dim = 16, .kv_heads = 1, .group = 2, .compute = Compute::kF32};
  AttentionWorld world(shape, {MakeSequence(shape, 400, 1), MakeSequence(shape, 260, 2)});
  std::vector<float>& k = world.sequences()[0].k;
  std::fill_n(k.begin() + 70 * 16, 16, kAttentionTestNan);
  std::fill_n(world.sequences()[1].k.begin(), 200 * 16, -kAttentionTestInf);
  std::fill(world.sequences()[1].q.begin(), world.sequences()[1].q.end(), 1.0f);
  ThreadPool pool(2);
  const KernelContext context = {pool, SupportedIsas().back()};
  world.Store(context, {{0, 0, 400}, {1, 0, 260}});
  const std::vector<StepPart> step = {{0, 60, 80}, {0, 399, 400}, {1, 0, 260}};
  const StepResult want = world.Attend(context, step);
  for (int ranks : {1, 2, 3, 8}) {
    ShardedWorld sharded(world, step, ranks);
    sharded.Store(context);
    const StepResult& got = sharded.Attend(context);
    EXPECT_TRUE(SameBits(got.out, want.out)) << ranks;
    EXPECT_TRUE(SameBits(got.max_logit, want.max_logit)) << ranks;
  }
}

TEST(AttentionShards, AllocateNothingOnceWarm) {
  const AttentionShape shape = {.head_dim = 16, .group = 2, .page_size = 128};
  AttentionWorld world(shape, Sequences(shape));
  ThreadPool pool(1);  // of several threads, which ones have warmed up is chance
  const KernelContext context = {pool, SupportedIsas().back()};
  ShardedWorld sharded(world, kStep, 3);
  sharded.Store(context);
  sharded.Attend(context);
  const int64_t before = Allocations();
  sharded.Attend(context);
  EXPECT_EQ(Allocations(), before);
}

// A sequence on 8 ranks with keys in two pages: six ranks have nothing to say.
TEST(AttentionShardPlan, RanksWithoutKeysContributeNothing) {
  const KvLayout layout = {.layers = 1, .kv_heads = 2, .head_dim = 16};
  const std::vector<int32_t> offsets = {0, 1}, lengths = {100};
  AttentionShardPlan plan;
  MakeAttentionShardPlan(layout, {offsets, lengths, {}}, 6, 0, 8, &plan);
  const int64_t floats = 2 * AttentionNodeFloats(3, 16);
  EXPECT_EQ(plan.rank_offsets, (std::vector<int64_t>{0, floats, 2 * floats, 2 * floats, 2 * floats,
                                                     2 * floats, 2 * floats, 2 * floats, 2 * floats}));
  MakeAttentionShardPlan(layout, {offsets, lengths, {}}, 6, 10, 8, &plan);  // which block 0 is outside of
  EXPECT_EQ(plan.RankFloats(0), 0);
  EXPECT_EQ(plan.RankFloats(1), floats);
}

// Every block of every tile once, on the rank of its page, in the order and at the place the header says.
TEST(AttentionShardPlan, LaysOutEveryBlockOnTheRankOfItsPage) {
  const std::vector<int32_t> offsets = {0, 130, 130, 131, 195, 200}, lengths = {0, 5, 4000, 64, 999};
  for (int64_t page_size : {64, 128, 192, 384}) {
    const KvLayout layout = {.layers = 1, .kv_heads = 3, .head_dim = 20, .page_size = page_size};
    for (int64_t window : {0, 1, 300}) {
      for (int ranks : {1, 2, 3, 8}) {
        AttentionShardPlan plan;
        ReserveAttentionShardPlan(layout, ranks, {.tokens = 200, .context = 4001}, &plan);
        const int64_t before = Allocations();
        MakeAttentionShardPlan(layout, {offsets, lengths, {}}, 6, window, ranks, &plan);
        EXPECT_EQ(Allocations(), before);
        std::vector<int64_t> used(ranks), next_owned(ranks);
        size_t piece = 0;
        for (const AttentionTile& tile : plan.tiles) {
          ASSERT_EQ(tile.first_piece, static_cast<int64_t>(piece));
          int64_t block = tile.first_block;
          for (int64_t i = 0; i < tile.pieces; ++i, ++piece) {
            const AttentionShardPiece& p = plan.pieces[piece];
            ASSERT_EQ(p.first_block, block);
            ASSERT_EQ(p.first_block * 64 / page_size, (p.end_block - 1) * 64 / page_size);
            ASSERT_EQ(p.first_block * 64 / page_size % ranks, p.rank);
            ASSERT_EQ(p.offset, used[p.rank]);
            ASSERT_EQ(plan.owned[p.rank][next_owned[p.rank]++], static_cast<int64_t>(piece));
            used[p.rank] += 3 * AttentionNodeFloats(tile.positions * 2, 20);
            block = p.end_block;
          }
          ASSERT_EQ(block, tile.end_block);
        }
        ASSERT_EQ(piece, plan.pieces.size());
        for (int rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(plan.RankFloats(rank), used[rank]);
          ASSERT_LE(used[rank], AttentionShardFloats(layout, 6, ranks, {.tokens = 200, .context = 4001}));
        }
      }
    }
  }
}

}  // namespace
}  // namespace plumbline
