#include "plumbline/kernels/attention/attention_shards.h"

#include <algorithm>

#include "plumbline/base/check.h"
#include "plumbline/kernels/attention/attention_kernels.h"
#include "plumbline/kernels/attention/attention_kernels_of.h"
#include "plumbline/kernels/attention/attention_tile.h"
#include "plumbline/kernels/attention/thread_scratch.h"

namespace plumbline {

void AttentionPartials(const KernelContext& context, const KvLayout& layout, const PagedBatch& batch,
                       const AttentionShardPlan& plan, int rank, int64_t layer, MatrixView<const float> q,
                       const AttentionOptions& options, std::span<float> partials) {
  PLUMBLINE_CHECK(layer >= 0 && layer < layout.layers && rank >= 0 && rank < plan.ranks);
  PLUMBLINE_CHECK(plan.kv_heads == layout.kv_heads && plan.head_dim == layout.head_dim);
  PLUMBLINE_CHECK(plan.window == options.window);
  PLUMBLINE_CHECK(q.cols == plan.kv_heads * plan.group * plan.head_dim);
  PLUMBLINE_CHECK(batch.pages.size() == batch.cache_lengths.size() && batch.row_offsets.back() == q.rows);
  PLUMBLINE_CHECK(std::ssize(partials) >= plan.RankFloats(rank));
  const AttentionKernels& kernels = AttentionKernelsOf(context.isa);
  const auto reduce = layout.compute == Compute::kBf16 ? kernels.reduce_bf16 : kernels.reduce_f32;
  const std::span<const int64_t> owned = plan.owned[rank];
  const int64_t scratch_floats =
      AttentionScratchFloats(plan.max_positions * plan.group, plan.head_dim, plan.chunk_blocks);

  context.pool.ParallelFor(std::ssize(owned) * plan.kv_heads, [&](int64_t i, int) {
    static thread_local ThreadScratch scratch;
    const AttentionShardPiece& piece = plan.pieces[owned[i / plan.kv_heads]];
    const int64_t kv_head = i % plan.kv_heads;
    const AttentionRows rows =
        AttentionRowsOf(layout, batch, layer, q, options, plan.tiles[piece.tile], kv_head);
    PLUMBLINE_CHECK(rows.pages[piece.first_block / rows.blocks_per_page] != nullptr);
    const int64_t floats = AttentionNodeFloats(rows.rows, plan.head_dim);
    std::copy_n(reduce(rows, piece.first_block, piece.end_block, scratch.Floats(scratch_floats)), floats,
                partials.data() + piece.offset + kv_head * floats);
  });
}

void AttentionFromPartials(const KernelContext& context, const AttentionShardPlan& plan,
                           const AttentionOptions& options, std::span<float> partials,
                           MatrixView<float> out) {
  PLUMBLINE_CHECK(out.cols == plan.kv_heads * plan.group * plan.head_dim);
  PLUMBLINE_CHECK(std::ssize(partials) >= plan.rank_offsets.back());
  const AttentionKernels& kernels = AttentionKernelsOf(context.isa);
  const int64_t group = plan.group, head_dim = plan.head_dim;

  context.pool.ParallelFor(std::ssize(plan.tiles) * plan.kv_heads, [&](int64_t i, int) {
    const AttentionTile& tile = plan.tiles[i / plan.kv_heads];
    const int64_t kv_head = i % plan.kv_heads, first_head = kv_head * group;
    PLUMBLINE_CHECK(tile.first_row + tile.positions <= out.rows);
    // All that finishing reads of the rows.
    const AttentionRows rows = {.rows = static_cast<int32_t>(tile.positions * group),
                                .group = static_cast<int32_t>(group),
                                .head_dim = head_dim};
    const int64_t floats = AttentionNodeFloats(rows.rows, head_dim);
    const float* root = MergeAttentionPieces(
        kernels, rows.rows, head_dim, tile.first_block / plan.chunk_blocks, tile.pieces, [&](int64_t p) {
          const AttentionShardPiece& piece = plan.pieces[tile.first_piece + p];
          return partials.data() + plan.rank_offsets[piece.rank] + piece.offset + kv_head * floats;
        });
    kernels.finish(rows, root, options.sinks != nullptr ? options.sinks + first_head : nullptr,
                   out.Row(tile.first_row) + first_head * head_dim, out.stride);
    if (options.max_logit != nullptr) {
      RaiseMaxLogit(rows.rows, group, root,
                    options.max_logit + tile.sequence * plan.kv_heads * group + first_head);
    }
  });
}

}  // namespace plumbline
