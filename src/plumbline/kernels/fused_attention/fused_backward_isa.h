// The tiles and products of the backward pass (fused_attention_grad_twin.h), for *_isa.cc files.
#pragma once

#include "plumbline/kernels/fused_attention/fused_forward_isa.h"

namespace plumbline::PLUMBLINE_ISA {

// Weights read across their rows: step i of row r at a[64 * i + r].
template <class Element>
struct FusedColumnsOf : Element {
  static inline typename Element::Operand Broadcast(const uint32_t* a, int64_t step) {
    return Element::Broadcast(a + 64 * step, 0);
  }
};

static void FusedRowDots(const FusedSource& a, const FusedSource& b, const int32_t* tokens, int32_t count,
                         float* dots) {
  for (int32_t r = 0; r < count; ++r) {
    F32x16 lanes = Zero();
    for (int64_t d = 0; d < a.dim; d += 16) {
      lanes = Fma(LoadToken(a, tokens[r], d), LoadToken(b, tokens[r], d), lanes);
    }
    dots[r] = SumAcross(lanes);
  }
}

// One row of a tile: from raw scores `pd` and products `ds` to Pd and dS, in place. Keys [lo, hi) count, all
// 64 if kFull.
template <bool kRound, bool kFull>
static inline void FusedPairRow(const FusedCall& call, const FusedBlockScores& scores, int r, float lse,
                                float delta, int lo, int hi, float* pd, float* ds) {
  Mask16 kept[4];
  if (call.dropout) scores.Keep(r, kept);
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const F32x16 x = scores.Score(r, v, Load(pd + 16 * v));
    const F32x16 p = Exp(x - Set(lse));
    F32x16 t = Load(ds + 16 * v), weight = p;
    if (call.dropout) {
      t = Select(kept[v], t * Set(call.keep_scale), Zero());
      weight = Select(kept[v], p * Set(call.keep_scale), Zero());
    }
    F32x16 d = p * (t - Set(delta));
    if constexpr (kRound) {
      weight = RoundToBf16(weight);
      d = RoundToBf16(d);
    }
    if constexpr (!kFull) {
      const Mask16 in = KeysInRange(v, lo, hi - 1);
      weight = Select(in, weight, Zero());
      d = Select(in, d, Zero());
    }
    Store(pd + 16 * v, weight);
    Store(ds + 16 * v, d);
  }
}

// Pd and dS [64, 64] as float32.
template <class Element>
static void FusedPairTile(const FusedCall& call, const FusedRows& rows, const FusedKeys& keys, int64_t block,
                          bool round, float* pd, float* ds) {
  const FusedBlockScores scores(call, rows, keys, block);
  const auto* k = reinterpret_cast<const uint32_t*>(keys.k_columns + block * call.qk_steps * 64);
  const auto* v = reinterpret_cast<const uint32_t*>(keys.v_columns + block * call.v_steps * 64);
  const auto* q = reinterpret_cast<const uint32_t*>(rows.q);
  const auto* d_out = reinterpret_cast<const uint32_t*>(rows.d_out);
  const int64_t q_stride = call.qk_width / Element::kPerStep, v_stride = call.v_width / Element::kPerStep;
  DotBlock<Element>({q, q_stride, k, ColumnStride(), pd, 64, call.qk_steps / Element::kPerStep, 64, false,
                     ColumnPanel(call.qk_steps)},
                    rows.rows);
  DotBlock<Element>({d_out, v_stride, v, ColumnStride(), ds, 64, call.v_steps / Element::kPerStep, 64, false,
                     ColumnPanel(call.v_steps)},
                    rows.rows);
  const auto row = round ? FusedPairRow<true, false> : FusedPairRow<false, false>;
  const auto full_row = round ? FusedPairRow<true, true> : FusedPairRow<false, true>;
  for (int r = 0; r < rows.rows; ++r) {
    int64_t lo = rows.lo[r] - block * 64, hi = rows.hi[r] - block * 64;
    lo = lo < 0 ? 0 : lo;
    hi = hi > 64 ? 64 : hi;
    if (lo >= hi || rows.lse[r] == -__builtin_inff()) lo = hi = 0;
    (hi - lo == 64 ? full_row : row)(call, scores, r, rows.lse[r], rows.delta[r], static_cast<int>(lo),
                                     static_cast<int>(hi), pd + r * 64, ds + r * 64);
  }
  for (int i = 0; rows.rows % 2 == 1 && i < 64; i += 16) {
    Store(pd + rows.rows * 64 + i, Zero());
    Store(ds + rows.rows * 64 + i, Zero());
  }
}

static void FusedPairs(const FusedCall& call, const FusedRows& rows, const FusedKeys& keys, int64_t block,
                       bool round, float* pd, float* ds, float* scratch) {
  FusedPairTile<F32Element>(call, rows, keys, block, round, pd != nullptr ? pd : scratch, ds);
}

template <class Element>
static void FusedProducts(int64_t row_stride, const float* weights, const float* lanes, int64_t width,
                          int32_t rows, int64_t steps, float* sums) {
  const auto* a = reinterpret_cast<const uint32_t*>(weights);
  const auto* b = reinterpret_cast<const uint32_t*>(lanes);
  DotBlock<Element>(
      {a, row_stride, b, LaneStride(width), sums, width, steps / Element::kPerStep, width, true, LanePanel()},
      rows);
}

static void FusedAddOverKeys(const float* weights, const float* lanes, int64_t width, int32_t rows,
                             int64_t steps, float* sums) {
  FusedProducts<F32Element>(64, weights, lanes, width, rows, steps, sums);
}

static void FusedAddOverRows(const float* weights, const float* rows, int64_t width, int32_t keys,
                             int64_t steps, float* sums) {
  FusedProducts<FusedColumnsOf<F32Element>>(1, weights, rows, width, keys, steps, sums);
}

#if defined(__AVX512BF16__)

static void FusedPairsOfPairs(const FusedCall& call, const FusedRows& rows, const FusedKeys& keys,
                              int64_t block, bool, float* pd, float* ds, float* scratch) {
  float *p = scratch, *d = scratch + 64 * 64;
  FusedPairTile<Bf16Element>(call, rows, keys, block, /*round=*/false, p, d);
  for (int r = 0; r < rows.rows; r += 2) {
    for (int i = 0; i < 64; i += 16) {
      const F32x16 d0 = Load(d + r * 64 + i), d1 = Load(d + r * 64 + 64 + i);
      Bf16Element::StoreRow(reinterpret_cast<uint32_t*>(ds + r * 32), i, d0);
      Bf16Element::StoreRow(reinterpret_cast<uint32_t*>(ds + r * 32 + 32), i, d1);
      if (pd == nullptr) continue;
      StoreI(ds + 2048 + r * 32 + i, PackPairs(d0, d1));
      StoreI(pd + 2048 + r * 32 + i, PackPairs(Load(p + r * 64 + i), Load(p + r * 64 + 64 + i)));
    }
  }
}

static void PairsAddOverKeys(const float* weights, const float* lanes, int64_t width, int32_t rows,
                             int64_t steps, float* sums) {
  FusedProducts<Bf16Element>(32, weights, lanes, width, rows, steps, sums);
}

static void PairsAddOverRows(const float* weights, const float* rows, int64_t width, int32_t keys,
                             int64_t steps, float* sums) {
  FusedProducts<FusedColumnsOf<Bf16Element>>(1, weights + 2048, rows + 32 * width, width, keys, steps, sums);
}

#endif

static void FusedAdd(int64_t count, float* left, const float* right) {
  for (int64_t i = 0; i < count; i += 16) Store(left + i, Load(left + i) + Load(right + i));
}

}  // namespace plumbline::PLUMBLINE_ISA
