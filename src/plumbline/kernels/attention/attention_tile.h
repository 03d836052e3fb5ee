// What attention over all pages and over one rank's pages do alike with a tile of query rows.
#pragma once

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "plumbline/kernels/attention/attention.h"
#include "plumbline/kernels/attention/attention_kernels.h"
#include "plumbline/kernels/attention/attention_plan.h"

namespace plumbline {

// The rows of `tile` for the query heads of one KV head. q as in Attention.
inline AttentionRows AttentionRowsOf(const KvLayout& layout, const PagedBatch& batch, int64_t layer,
                                     MatrixView<const float> q, const AttentionOptions& options,
                                     const AttentionTile& tile, int64_t kv_head) {
  const int64_t group = q.cols / (layout.kv_heads * layout.head_dim);
  return {.rows = static_cast<int32_t>(tile.positions * group),
          .group = static_cast<int32_t>(group),
          .head_dim = layout.head_dim,
          .first_position = tile.first_position,
          .window = options.window,
          .scale = options.scale,
          .softcap = options.softcap,
          .q = q.Row(tile.first_row) + kv_head * group * layout.head_dim,
          .q_stride = q.stride,
          .pages = batch.pages[tile.sequence],
          .blocks_per_page = layout.BlocksPerPage(),
          .block_offset = layout.BlockOffset(layer, kv_head, 0),
          .block_bytes = layout.BlockBytes()};
}

// The root of `pieces` consecutive aligned chunks of blocks, the first of them chunk `first_chunk` of its
// sequence: the dyadic tree, absent chunks before the first being identities. node_of(i) is the node of
// piece i; the nodes are overwritten and the root is one of them.
template <typename NodeOf>
float* MergeAttentionPieces(const AttentionKernels& kernels, int64_t rows, int64_t head_dim,
                            int64_t first_chunk, int64_t pieces, NodeOf&& node_of) {
  std::array<float*, 64> waiting{};  // by level: a node that waits for its right sibling
  for (int64_t i = 0; i < pieces; ++i) {
    float* node = node_of(i);
    int level = 0;
    for (; (first_chunk + i) >> level & 1; ++level) {
      if (waiting[level] == nullptr) continue;
      kernels.merge(rows, head_dim, waiting[level], node);
      node = std::exchange(waiting[level], nullptr);
    }
    waiting[level] = node;
  }
  float* root = nullptr;
  for (float* node : waiting) {
    if (node == nullptr) continue;
    if (root != nullptr) kernels.merge(rows, head_dim, node, root);
    root = node;
  }
  return root;
}

// A zero comes out as +0, since which of two zeros a vector maximum returns depends on their order.
inline float MaxLogitOf(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
  return (a > b ? a : b) + 0.0f;
}

// Raises max_logit [group] to the maxima of a root's rows, while other threads may do the same: the root's m
// is the maximum of every allowed score of its row.
inline void RaiseMaxLogit(int64_t rows, int64_t group, const float* root, float* max_logit) {
  for (int64_t h = 0; h < group; ++h) {
    float top = -std::numeric_limits<float>::infinity();
    for (int64_t r = h; r < rows; r += group) top = MaxLogitOf(top, root[r]);
    std::atomic_ref<float> shared(max_logit[h]);
    float old = shared.load(std::memory_order_relaxed);
    while (!shared.compare_exchange_weak(old, MaxLogitOf(old, top), std::memory_order_relaxed)) {
    }
  }
}

}  // namespace plumbline
