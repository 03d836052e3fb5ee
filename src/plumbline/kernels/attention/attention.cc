#include "plumbline/kernels/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "plumbline/base/check.h"
#include "plumbline/kernels/attention/attention_kernels.h"
#include "plumbline/kernels/attention/attention_kernels_of.h"
#include "plumbline/kernels/attention/attention_plan.h"
#include "plumbline/kernels/attention/attention_tile.h"
#include "plumbline/kernels/attention/thread_scratch.h"

namespace plumbline {
namespace {

// What every piece of one call shares.
class Call {
 public:
  Call(const KernelContext& context, const KvLayout& layout, const PagedBatch& batch, int64_t layer,
       int64_t heads, MatrixView<const float> q, const AttentionOptions& options, MatrixView<float> out)
      : kernels_(AttentionKernelsOf(context.isa)),
        layout_(layout),
        batch_(batch),
        layer_(layer),
        heads_(heads),
        group_(heads / layout.kv_heads),
        q_(q),
        options_(options),
        out_(out) {}

  void Run(ThreadPool& pool) {
    static thread_local AttentionPlan plan;
    static thread_local ThreadScratch pieces;
    static thread_local std::vector<int32_t> unfinished;
    plan_ = &plan;
    MakeAttentionPlan(batch_, layout_.kv_heads, group_, options_.window, pool.threads(), plan_);
    max_rows_ = plan.max_positions * group_;
    node_floats_ = AttentionNodeFloats(max_rows_, layout_.head_dim);
    pieces_ = pieces.Floats(plan.merged_pieces * layout_.kv_heads * node_floats_);
    unfinished.assign(plan.tiles.size() * layout_.kv_heads, 0);
    unfinished_ = unfinished.data();
    for (size_t t = 0; t < plan.tiles.size(); ++t) {
      std::fill_n(unfinished_ + t * layout_.kv_heads, layout_.kv_heads,
                  static_cast<int32_t>(plan.tiles[t].pieces));
    }
    pool.ParallelFor(std::ssize(plan.pieces) * layout_.kv_heads, [this](int64_t i, int) {
      Compute(plan_->pieces[i / layout_.kv_heads], i % layout_.kv_heads);
    });
  }

 private:
  float* NodeOf(const AttentionTile& tile, int64_t kv_head, int64_t piece) const {
    return pieces_ + ((tile.first_piece + piece) * layout_.kv_heads + kv_head) * node_floats_;
  }

  void Compute(const AttentionPiece& piece, int64_t kv_head) {
    static thread_local ThreadScratch scratch;
    const AttentionTile& tile = plan_->tiles[piece.tile];
    const AttentionRows rows = AttentionRowsOf(layout_, batch_, layer_, q_, options_, tile, kv_head);
    const auto reduce =
        layout_.compute == plumbline::Compute::kBf16 ? kernels_.reduce_bf16 : kernels_.reduce_f32;
    const float* node =
        reduce(rows, piece.first_block, piece.end_block,
               scratch.Floats(AttentionScratchFloats(max_rows_, layout_.head_dim, plan_->max_blocks)));
    if (tile.pieces > 1) {
      std::copy_n(node, AttentionNodeFloats(rows.rows, layout_.head_dim), NodeOf(tile, kv_head, piece.index));
      // Whoever finishes a tile's last piece merges them all; the tree does not care who that is.
      std::atomic_ref<int32_t> left(unfinished_[piece.tile * layout_.kv_heads + kv_head]);
      if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      node =
          MergeAttentionPieces(kernels_, rows.rows, layout_.head_dim, tile.first_block / plan_->chunk_blocks,
                               tile.pieces, [&](int64_t i) { return NodeOf(tile, kv_head, i); });
    }
    const float* sinks = options_.sinks != nullptr ? options_.sinks + kv_head * group_ : nullptr;
    kernels_.finish(rows, node, sinks, out_.Row(tile.first_row) + kv_head * group_ * layout_.head_dim,
                    out_.stride);
    if (options_.max_logit != nullptr) {
      RaiseMaxLogit(rows.rows, group_, node, options_.max_logit + tile.sequence * heads_ + kv_head * group_);
    }
  }

  const AttentionKernels& kernels_;
  const KvLayout& layout_;
  const PagedBatch& batch_;
  const int64_t layer_;
  const int64_t heads_;
  const int64_t group_;
  const MatrixView<const float> q_;
  const AttentionOptions& options_;
  const MatrixView<float> out_;
  AttentionPlan* plan_ = nullptr;
  int64_t max_rows_ = 0;
  int64_t node_floats_ = 0;
  float* pieces_ = nullptr;        // nodes of the tiles cut into several pieces [merged_pieces, kv_heads]
  int32_t* unfinished_ = nullptr;  // [tiles, kv_heads]
};

}  // namespace

void Attention(const KernelContext& context, const KvLayout& layout, const PagedBatch& batch, int64_t layer,
               int64_t heads, MatrixView<const float> q, const AttentionOptions& options,
               MatrixView<float> out) {
  PLUMBLINE_CHECK(layout.page_size > 0 && layout.page_size % kKeyBlock == 0);
  PLUMBLINE_CHECK(layer >= 0 && layer < layout.layers && layout.head_dim > 0);
  PLUMBLINE_CHECK(heads > 0 && heads % layout.kv_heads == 0 && options.window >= 0);
  PLUMBLINE_CHECK(q.cols == heads * layout.head_dim && out.cols == q.cols && out.rows == q.rows);
  PLUMBLINE_CHECK(batch.row_offsets.size() == batch.cache_lengths.size() + 1);
  PLUMBLINE_CHECK(batch.pages.size() == batch.cache_lengths.size() && batch.row_offsets.back() == q.rows);
  Call(context, layout, batch, layer, heads, q, options, out).Run(context.pool);
}

}  // namespace plumbline
