// One row's softmax over one key block, for *_isa.cc files (attention_twin.h: m, p and l of a block).
#pragma once

#include "plumbline/kernels/attention/block_dot.h"
#include "plumbline/kernels/simd/vmath.h"

namespace plumbline::PLUMBLINE_ISA {

// Lane i of the result is lane i ^ kDistance.
template <int kDistance>
static inline F32x16 SwapLanes(F32x16 a) {
#if defined(__AVX512F__)
  if constexpr (kDistance == 1) return {_mm512_permute_ps(a.v, 0xb1)};
  if constexpr (kDistance == 2) return {_mm512_permute_ps(a.v, 0x4e)};
  if constexpr (kDistance == 4) return {_mm512_shuffle_f32x4(a.v, a.v, 0xb1)};
  if constexpr (kDistance == 8) return {_mm512_shuffle_f32x4(a.v, a.v, 0x4e)};
#else
  if constexpr (kDistance == 1) return {_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)};
  if constexpr (kDistance == 2) return {_mm256_permute_ps(a.lo, 0x4e), _mm256_permute_ps(a.hi, 0x4e)};
  if constexpr (kDistance == 4) {
    return {_mm256_permute2f128_ps(a.lo, a.lo, 0x01), _mm256_permute2f128_ps(a.hi, a.hi, 0x01)};
  }
  if constexpr (kDistance == 8) return {a.hi, a.lo};
#endif
}

static inline float FirstLane(F32x16 a) {
#if defined(__AVX512F__)
  return _mm512_cvtss_f32(a.v);
#else
  return _mm256_cvtss_f32(a.lo);
#endif
}

// TreeSum without a trip through memory; addition commutes, so that every lane holds the tree's value.
static inline float SumAcross(F32x16 a) {
  a = a + SwapLanes<1>(a);
  a = a + SwapLanes<2>(a);
  a = a + SwapLanes<4>(a);
  return FirstLane(a + SwapLanes<8>(a));
}

static inline float MaxAcross(F32x16 a) {  // no lane is NaN; of two zeros either
  a = MaxPs(a, SwapLanes<1>(a));
  a = MaxPs(a, SwapLanes<2>(a));
  a = MaxPs(a, SwapLanes<4>(a));
  return FirstLane(MaxPs(a, SwapLanes<8>(a)));
}

static inline F32x16 MinusInfinity() { return AsF32(SetI(static_cast<int32_t>(0xff800000u))); }

// Keys [lo, hi] of the block, as lanes of its vector v.
static inline Mask16 KeysInRange(int v, int lo, int hi) {
  const int begin = lo - 16 * v, end = hi + 1 - 16 * v;
  return FirstN(end < 0 ? 0 : end) & ~FirstN(begin < 0 ? 0 : begin);
}

// The vectors x [4] that the softmax of one row is taken of: score(v, raw) of the raw scores s [64], of which
// keys [lo, hi] count (all 64 if kFull). Returns their maximum, a zero of either sign where it is one: only
// max_logit would show it, and it makes every zero +0.
template <bool kFull, class Score>
static inline float ScoreRow(const Score& score, const float* s, int lo, int hi, F32x16* x) {
  const int begin = kFull ? 0 : lo / 16, end = kFull ? 4 : hi / 16 + 1;
  F32x16 top = MinusInfinity();
  Mask16 nan = FirstN(0);
#pragma GCC unroll 4
  for (int v = begin; v < end; ++v) {
    x[v] = score(v, Load(s + 16 * v));
    if constexpr (!kFull) x[v] = Select(KeysInRange(v, lo, hi), x[v], MinusInfinity());
    top = MaxPs(top, x[v]);
    nan = nan | IsNan(x[v]);
  }
  return Bits(nan) != 0 ? __builtin_nanf("") : MaxAcross(top);
}

// The sum of the row's probabilities. They take the place of s, as keep(v, p) leaves them, rounded and laid
// out by Element::StoreRow, for the vectors the row's keys lie in; +0 for the keys that do not count.
template <class Element, bool kFull, class Keep>
static inline float WeighRow(const Keep& keep, const F32x16* x, float max, float* s, int lo, int hi) {
  const int begin = kFull ? 0 : lo / 16, end = kFull ? 4 : hi / 16 + 1;
  F32x16 sum = Zero();
#pragma GCC unroll 4
  for (int v = begin; v < end; ++v) {
    F32x16 e = Exp(x[v] - Set(max));
    if constexpr (!kFull) e = Select(KeysInRange(v, lo, hi), e, Zero());
    sum = sum + e;
    Element::StoreRow(reinterpret_cast<uint32_t*>(s), 16 * v, keep(v, e));
  }
  return SumAcross(sum);
}

// Both, m and l of the block (attention_twin.h).
template <class Element, bool kFull, class Score, class Keep>
static inline void SoftmaxRow(const Score& score, const Keep& keep, float* s, int lo, int hi, float* m,
                              float* l) {
  F32x16 x[4];
  *m = ScoreRow<kFull>(score, s, lo, hi, x);
  *l = WeighRow<Element, kFull>(keep, x, *m, s, lo, hi);
}

// The decoder's scores: scale, then soft-cap.
template <class Element, bool kFull>
static inline void SoftmaxRow(float scale, float softcap, float* s, int lo, int hi, float* m, float* l) {
  const auto score = [&](int, F32x16 raw) {
    const F32x16 x = raw * Set(scale);
    return softcap > 0.0f ? Set(softcap) * Tanh(x / Set(softcap)) : x;
  };
  SoftmaxRow<Element, kFull>(
      score, [](int, F32x16 p) { return p; }, s, lo, hi, m, l);
}

}  // namespace plumbline::PLUMBLINE_ISA
