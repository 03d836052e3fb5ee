// The forward pass of up to 64 query rows (fused_attention_twin.h), for *_isa.cc files.
#pragma once

#include "plumbline/kernels/attention/node_isa.h"
#include "plumbline/kernels/fused_attention/fused_scores_isa.h"

namespace plumbline::PLUMBLINE_ISA {

// How probabilities are stored: an element's own way, or as float32 that holds bf16 values.
struct FusedBf16Element : F32Element {
  static inline void StoreRow(uint32_t* a, int64_t element, F32x16 x) {
    F32Element::StoreRow(a, element, RoundToBf16(x));
  }
};

static inline bool FusedSeesAll(const FusedRows& rows, int first, int count, int64_t block) {
  bool all = true;
  for (int r = first; r < first + count; ++r) {
    all = all && rows.lo[r] <= block * 64 && rows.hi[r] >= block * 64 + 64;
  }
  return all;
}

template <class Element>
static BlockTile<Element> FusedTileOf(const FusedRows& rows, int first, int count, int64_t block) {
  const bool full = FusedSeesAll(rows, first, count, block);
  BlockTile<Element> tile(count, full);
  for (int r = 0; r < count && !full; ++r) {
    tile.SetRange(r, rows.lo[first + r] - block * 64, rows.hi[first + r] - 1 - block * 64);
  }
  return tile;
}

// Rows that see a whole block, a few at a time: the scores of all, then the probabilities of all, so that one
// row's chain from maximum to sum runs beside the others'.
template <class Stored>
static void SoftmaxRows(const FusedCall& call, const FusedBlockScores& block_scores, int rows, float* scores,
                        const Node& node) {
  constexpr int kTogether = 8;
  for (int first = 0; first < rows; first += kTogether) {
    const int end = rows - first < kTogether ? rows : first + kTogether;
    F32x16 x[kTogether][4];
    for (int r = first; r < end; ++r) {
      const auto score = [&](int i, F32x16 raw) { return block_scores.Score(r, i, raw); };
      node.m[r] = ScoreRow<true>(score, scores + r * 64, 0, 63, x[r - first]);
    }
    for (int r = first; r < end; ++r) {
      float* s = scores + r * 64;
      if (!call.dropout) {
        const auto all = [](int, F32x16 p) { return p; };
        node.l[r] = WeighRow<Stored, true>(all, x[r - first], node.m[r], s, 0, 63);
        continue;
      }
      Mask16 kept[4];
      block_scores.Keep(r, kept);
      const auto some = [&](int i, F32x16 p) { return Select(kept[i], p, Zero()); };
      node.l[r] = WeighRow<Stored, true>(some, x[r - first], node.m[r], s, 0, 63);
    }
  }
}

// The same where rows see different keys, tile by tile.
template <class Element, class Stored>
static void SoftmaxTile(const FusedCall& call, const FusedBlockScores& block_scores, int first,
                        BlockTile<Element>& tile, float* scores, const Node& node) {
  tile.Softmax(scores + first * 64, node.m + first, node.l + first,
               [&](auto is_full, int r, float* s, int lo, int hi, float* m, float* l) {
                 const auto score = [&](int i, F32x16 raw) { return block_scores.Score(first + r, i, raw); };
                 if (!call.dropout) {
                   const auto all = [](int, F32x16 p) { return p; };
                   return SoftmaxRow<Stored, is_full.value>(score, all, s, lo, hi, m, l);
                 }
                 Mask16 kept[4];
                 block_scores.Keep(first + r, kept);
                 const auto some = [&](int i, F32x16 p) { return Select(kept[i], p, Zero()); };
                 SoftmaxRow<Stored, is_full.value>(score, some, s, lo, hi, m, l);
               });
}

// Element multiplies, Stored rounds and stores probabilities.
template <class Element, class Stored>
static void FusedForwardBlock(const FusedCall& call, const FusedRows& rows, const FusedKeys& keys,
                              int64_t block, float* scores, const Node& node) {
  const FusedBlockScores block_scores(call, rows, keys, block);
  const auto* k = reinterpret_cast<const uint32_t*>(keys.k_columns + block * call.qk_steps * 64);
  const auto* v = reinterpret_cast<const uint32_t*>(keys.v_lanes + block * 64 * call.v_width);
  const auto* q = reinterpret_cast<const uint32_t*>(rows.q);
  const int64_t q_stride = call.qk_width / Element::kPerStep, steps = call.qk_steps / Element::kPerStep;
  const int64_t k_panel = ColumnPanel(call.qk_steps);
  if (kPanels && FusedSeesAll(rows, 0, rows.rows, block)) {
    DotBlock<Element>({q, q_stride, k, ColumnStride(), scores, 64, steps, 64, false, k_panel}, rows.rows);
    SoftmaxRows<Stored>(call, block_scores, rows.rows, scores, node);
    return DotBlock<Element>({reinterpret_cast<const uint32_t*>(scores), 64, v, LaneStride(call.v_width),
                              node.o, call.v_width, 64 / Element::kPerStep, call.v_width, false, LanePanel()},
                             rows.rows);
  }
  ForTiles<Element::kRows>(rows.rows, [&](int first, int count) {
    BlockTile<Element> tile = FusedTileOf<Element>(rows, first, count, block);
    tile.Scores(q + first * q_stride, q_stride, k, scores + first * 64, steps, ColumnStride(), k_panel);
    SoftmaxTile<Element, Stored>(call, block_scores, first, tile, scores, node);
  });
  ForTiles<Element::kRows>(rows.rows, [&](int first, int count) {
    FusedTileOf<Element>(rows, first, count, block)
        .Output(scores + first * 64, v, LaneStride(call.v_width), call.v_width, node.o + first * call.v_width,
                call.v_width, LanePanel());
  });
}

// Sixteen rows from their root: lse, and the factors of out.
static void FinishRows(const FusedCall& call, const FusedRows& rows, const Node& root, int first, float sink,
                       FusedForwardResult* result) {
  alignas(64) float a[16], inverse[16], lse[16];
  const F32x16 m = Load(root.m + first), l = Load(root.l + first);
  const Mask16 empty = m == MinusInfinity();
  F32x16 top = m, sum = l, weight = Set(1.0f);
  if (sink != -__builtin_inff()) {
    top = MaxNan(m, Set(sink));
    weight = Exp(m - top);
    sum = l * weight + Exp(Set(sink) - top);
  }
  Store(a, weight);
  Store(inverse, Set(1.0f) / sum);
  Store(lse, Select(empty, Set(sink), top + Log(sum)));
  const int64_t size = FusedSize(result->out.type);
  for (int i = 0; i < 16 && first + i < rows.rows; ++i) {
    const int r = first + i;
    const bool none = (Bits(empty) >> i & 1) != 0;
    result->lse[rows.tokens[r]] = lse[i];
    const float max = root.m[r];
    if (max != max || !(result->max_logit >= max)) {
      if (result->max_logit == result->max_logit) result->max_logit = max;
    }
    char* to = result->out.data + rows.tokens[r] * result->out.stride * size;
    for (int64_t d = 0; d < call.v_dim; d += 16) {
      F32x16 x = Load(root.o + r * call.v_width + d);
      if (sink != -__builtin_inff()) x = x * Set(a[i]);
      x = x * Set(inverse[i]);
      if (call.dropout) x = x * Set(call.keep_scale);
      StoreElements(result->out.type, to + d * size, none ? Zero() : x, call.v_dim - d);
    }
  }
}

template <class Element, class Stored>
static void FusedForwardOf(const FusedCall& call, const FusedRows& rows, const FusedKeys& keys,
                           int64_t first_block, int64_t end_block, float sink, float* scratch,
                           FusedForwardResult* result) {
  float* nodes = scratch + 64 * 64;
  const float* root = ReduceBlocks(
      rows.rows, call.v_width, first_block, end_block, nodes, [&](int64_t block, const Node& node) {
        FusedForwardBlock<Element, Stored>(call, rows, keys, block, scratch, node);
      });
  const Node at = NodeAt(const_cast<float*>(root), rows.rows);
  if (first_block >= end_block) {
    for (int r = 0; r < rows.rows; ++r) at.m[r] = -__builtin_inff();
  }
  result->max_logit = -__builtin_inff();
  for (int first = 0; first < rows.rows; first += 16) FinishRows(call, rows, at, first, sink, result);
  result->max_logit = result->max_logit + 0.0f;
}

static void FusedForward(const FusedCall& call, const FusedRows& rows, const FusedKeys& keys,
                         int64_t first_block, int64_t end_block, float sink, float* scratch,
                         FusedForwardResult* result) {
  const auto forward = call.type == FusedType::kBf16 ? FusedForwardOf<F32Element, FusedBf16Element>
                                                     : FusedForwardOf<F32Element, F32Element>;
  forward(call, rows, keys, first_block, end_block, sink, scratch, result);
}

}  // namespace plumbline::PLUMBLINE_ISA
