// The tiles and products of the backward pass (fused_attention_grad_twin.h), for *_isa.cc files.
#pragma once

#include "plumbline/kernels/fused_attention/fused_forward_isa.h"

namespace plumbline::PLUMBLINE_ISA {

// Weights of a [64, 64] tile read by columns: step i of row r at a[64 * i + r].
struct FusedColumnElement : F32Element {
  static inline Operand Broadcast(const uint32_t* a, int64_t step) {
    return Set(reinterpret_cast<const float*>(a)[64 * step]);
  }
};

static void FusedRowDots(int32_t count, int64_t width, const float* a, const float* b, float* dots) {
  for (int32_t r = 0; r < count; ++r, a += width, b += width) {
    F32x16 lanes = Zero();
    for (int64_t d = 0; d < width; d += 16) lanes = Fma(Load(a + d), Load(b + d), lanes);
    dots[r] = SumAcross(lanes);
  }
}

// One row of a tile: from raw scores `pd` and products `ds` to Pd and dS, in place. Keys [lo, hi) count.
template <bool kRound>
static inline void FusedPairRow(const FusedCall& call, const FusedBlockScores& scores, int r, float lse,
                                float delta, int lo, int hi, float* pd, float* ds) {
  Mask16 kept[4];
  if (call.dropout) scores.Keep(r, kept);
  for (int v = 0; v < 4; ++v) {
    const F32x16 x = scores.Score(r, v, Load(pd + 16 * v));
    const Mask16 in = KeysInRange(v, lo, hi - 1);
    const F32x16 p = Exp(x - Set(lse));
    F32x16 t = Load(ds + 16 * v), weight = p;
    if (call.dropout) {
      t = Select(kept[v], t * Set(call.keep_scale), Zero());
      weight = Select(kept[v], p * Set(call.keep_scale), Zero());
    }
    const F32x16 d = p * (t - Set(delta));
    Store(pd + 16 * v, Select(in, kRound ? RoundToBf16(weight) : weight, Zero()));
    Store(ds + 16 * v, Select(in, kRound ? RoundToBf16(d) : d, Zero()));
  }
}

static void FusedPairs(const FusedCall& call, const FusedRows& rows, const FusedKeys& keys, int64_t block,
                       bool round, float* pd, float* ds, float* scratch) {
  if (pd == nullptr) pd = scratch;
  const FusedBlockScores scores(call, rows, keys, block);
  const auto* k = reinterpret_cast<const uint32_t*>(keys.k_columns + block * call.qk_steps * 64);
  const auto* v = reinterpret_cast<const uint32_t*>(keys.v_columns + block * call.v_steps * 64);
  const auto* q = reinterpret_cast<const uint32_t*>(rows.q);
  const auto* d_out = reinterpret_cast<const uint32_t*>(rows.d_out);
  ForTiles<F32Element::kRows>(rows.rows, [&](int r, int count) {
    Dot<F32Element>({q + r * call.qk_width, call.qk_width, k, 64, pd + r * 64, 64, call.qk_steps, 64, false},
                    count);
  });
  ForTiles<F32Element::kRows>(rows.rows, [&](int r, int count) {
    Dot<F32Element>({d_out + r * call.v_width, call.v_width, v, 64, ds + r * 64, 64, call.v_steps, 64, false},
                    count);
  });
  for (int r = 0; r < rows.rows; ++r) {
    int64_t lo = rows.lo[r] - block * 64, hi = rows.hi[r] - block * 64;
    lo = lo < 0 ? 0 : lo;
    hi = hi > 64 ? 64 : hi;
    if (lo >= hi || rows.lse[r] == -__builtin_inff()) lo = hi = 0;
    const auto row = round ? FusedPairRow<true> : FusedPairRow<false>;
    row(call, scores, r, rows.lse[r], rows.delta[r], static_cast<int>(lo), static_cast<int>(hi), pd + r * 64,
        ds + r * 64);
  }
  if (rows.rows % 2 == 1) {
    for (int i = 0; i < 64; i += 16) {
      Store(pd + rows.rows * 64 + i, Zero());
      Store(ds + rows.rows * 64 + i, Zero());
    }
  }
}

template <class Element>
static void FusedProductsOf(int64_t row_stride, const float* weights, const float* b, int64_t width,
                            int32_t rows, int64_t steps, bool accumulate, float* sums) {
  const auto* a = reinterpret_cast<const uint32_t*>(weights);
  ForTiles<Element::kRows>(rows, [&](int r, int count) {
    Dot<Element>({a + r * row_stride, row_stride, reinterpret_cast<const uint32_t*>(b), width,
                  sums + r * width, width, steps, width, accumulate},
                 count);
  });
}

static void FusedProducts(bool columns, const float* weights, const float* b, int64_t width, int32_t rows,
                          int64_t steps, bool accumulate, float* sums) {
  if (columns) {
    FusedProductsOf<FusedColumnElement>(1, weights, b, width, rows, steps, accumulate, sums);
  } else {
    FusedProductsOf<F32Element>(64, weights, b, width, rows, steps, accumulate, sums);
  }
}

static void FusedAdd(int64_t count, float* left, const float* right) {
  for (int64_t i = 0; i < count; i += 16) Store(left + i, Load(left + i) + Load(right + i));
}

}  // namespace plumbline::PLUMBLINE_ISA
