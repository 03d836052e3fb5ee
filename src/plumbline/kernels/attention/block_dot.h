// The one inner loop of attention, for *_isa.cc files: chains of dot products between rows of broadcast
// operands and a stretch of the KV cache, in the contract's order. Scores and outputs are both this product:
//
//   c[r, lane] = chain over steps, ascending, of  c = a[r, step] . b[step, lane]
//
//   scores    a = query [rows, dims],           b = K part [dims, 64 keys]
//   output    a = probabilities [rows, keys],   b = V part [keys, head_dim]
//
// A step is one word of the cache: a bf16 pair (two fused multiply-adds) or a float32 (one). An Element type
// says which, and how a row of float32 is stored so that a step can be broadcast.
#pragma once

#include "plumbline/kernels/simd/vec16.h"

namespace plumbline::PLUMBLINE_ISA {

struct F32Element {
  static constexpr int kPerStep = 1;
  static constexpr int kWordsPerStep = 1;
#if defined(__AVX512F__)
  static constexpr int kRows = 6, kVectors = 4;  // 24 sums, 4 cache vectors, of 32 registers
#else
  static constexpr int kRows = 6, kVectors = 1;  // 12 sums, 2 cache vectors, one of a, of 16 registers
#endif
  using Operand = F32x16;
  static inline Operand FromWords(I32x16 words) { return AsF32(words); }
  static inline Operand Broadcast(const uint32_t* a, int64_t step) {
    return Set(reinterpret_cast<const float*>(a)[step]);
  }
  static inline F32x16 Dot(F32x16 acc, Operand b, Operand a) { return Fma(b, a, acc); }
  static inline void StoreRow(uint32_t* a, int64_t element, F32x16 x) {
    Store(reinterpret_cast<float*>(a) + element, x);
  }
};

#if defined(__AVX512BF16__)

struct Bf16Element {
  static constexpr int kPerStep = 2;
  static constexpr int kWordsPerStep = 1;
  static constexpr int kRows = 6, kVectors = 4;
  using Operand = I32x16;
  static inline Operand FromWords(I32x16 words) { return words; }
  static inline Operand Broadcast(const uint32_t* a, int64_t step) {
    return SetI(static_cast<int32_t>(a[step]));
  }
  static inline F32x16 Dot(F32x16 acc, Operand b, Operand a) { return DotPairs(acc, b, a); }
  static inline void StoreRow(uint32_t* a, int64_t element, F32x16 x) {
    const __m256i rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(a + element / 2), _mm256_rol_epi32(rounded, 16));
  }
};

#else

// Without a bf16 product: rows are kept as float32 that hold bf16 values, so that only the cache is widened.
struct Bf16Element {
  static constexpr int kPerStep = 2;
  static constexpr int kWordsPerStep = 2;
#if defined(__AVX512F__)
  static constexpr int kRows = 5, kVectors = 4;  // 20 sums, 8 widened cache vectors
#else
  static constexpr int kRows = 5, kVectors = 1;
#endif
  struct Operand {
    F32x16 even, odd;
  };
  static inline Operand FromWords(I32x16 words) { return {PairHigh(words), PairLow(words)}; }
  static inline Operand Broadcast(const uint32_t* a, int64_t step) {
    const float* pair = reinterpret_cast<const float*>(a) + 2 * step;
    return {Set(pair[0]), Set(pair[1])};
  }
  static inline F32x16 Dot(F32x16 acc, Operand b, Operand a) {
    return Fma(b.odd, a.odd, Fma(b.even, a.even, acc));
  }
  static inline void StoreRow(uint32_t* a, int64_t element, F32x16 x) {
    StoreI(a + element, ShiftLeft<16>(Bf16Bits(x)));
  }
};

#endif

struct BlockDot {
  const uint32_t* a;  // row r at a + r * a_stride, from its first step on
  int64_t a_stride;
  const uint32_t* b;  // step i at b + i * b_stride
  int64_t b_stride;
  float* c;  // row r at c + r * c_stride; whole vectors are written
  int64_t c_stride;
  int64_t steps;
  int64_t lanes;         // words of a step that are read
  bool accumulate;       // the chains go on from c instead of from +0
  int64_t b_panel = 16;  // from sixteen lanes of b to the next sixteen; 16 where kPanels is false
};

// Whether sixteen lanes of all steps may lie together, as a panel: a tile of sixteen lanes then reads memory
// in order, and its lines spread over all sets of the first-level cache. Wider tiles have no use for it.
#if defined(__AVX512F__)
constexpr bool kPanels = false;
#else
constexpr bool kPanels = true;
#endif

static inline int64_t PanelOf(const BlockDot& d) { return kPanels ? d.b_panel : 16; }

// Lanes from n on read as zero and their memory is not touched.
static inline I32x16 LoadWords(const uint32_t* p, int64_t n) {
  return n >= 16 ? LoadI(p) : AsI32(LoadN(reinterpret_cast<const float*>(p), static_cast<int>(n)));
}

// `tail` words of the last vector are read if kTail, 16 otherwise.
template <class Element, int kRows, int kVectors, bool kTail>
static void DotTile(const BlockDot& d, int64_t lane, int64_t tail) {
  F32x16 acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = d.accumulate ? Load(d.c + r * d.c_stride + lane + 16 * v) : Zero();
    }
  }
  const int64_t panel = PanelOf(d);
  const uint32_t* b = d.b + lane / 16 * panel;
#if !defined(__AVX512F__)
#pragma GCC unroll 4
#endif
  for (int64_t i = 0; i < d.steps; ++i, b += d.b_stride) {
    typename Element::Operand cache[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      cache[v] = Element::FromWords(kTail && v == kVectors - 1 ? LoadWords(b + panel * v, tail)
                                                               : LoadI(b + panel * v));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename Element::Operand a = Element::Broadcast(d.a + r * d.a_stride, i);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[r][v] = Element::Dot(acc[r][v], cache[v], a);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(d.c + r * d.c_stride + lane + 16 * v, acc[r][v]);
  }
}

template <class Element, int kRows = Element::kRows, int kVectors = Element::kVectors>
static void DotTileOf(int rows, int64_t vectors, const BlockDot& d, int64_t lane, int64_t tail) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return DotTileOf<Element, kRows - 1, kVectors>(rows, vectors, d, lane, tail);
  }
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) return DotTileOf<Element, kRows, kVectors - 1>(rows, vectors, d, lane, tail);
  }
  if (tail < 16) return DotTile<Element, kRows, kVectors, true>(d, lane, tail);
  DotTile<Element, kRows, kVectors, false>(d, lane, tail);
}

// 1 <= rows <= Element::kRows. Any split over lanes gives the same bits; even parts keep the registers busy.
template <class Element>
static void Dot(const BlockDot& d, int rows) {
  const int64_t vectors = (d.lanes + 15) / 16;
  const int64_t parts = (vectors + Element::kVectors - 1) / Element::kVectors;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = vectors * part / parts, end = vectors * (part + 1) / parts;
    DotTileOf<Element>(rows, end - begin, d, 16 * begin, end == vectors ? d.lanes - 16 * (end - 1) : 16);
  }
}

// One aligned pair of b's elements, of which only one counts, added to row 0: the other, in both a and b, is
// +0.
template <class Element>
static void DotBoundaryPair(const BlockDot& d, int64_t pair, bool even) {
  constexpr int kSteps = 2 / Element::kPerStep;
  for (int64_t lane = 0; lane < d.lanes; lane += 16) {
    F32x16 acc = Load(d.c + lane);
    for (int half = 0; half < kSteps; ++half) {
      const uint32_t whole = (half == 0) == even ? 0xffffffffu : 0u;
      const uint32_t kept = kSteps == 2 ? whole : even ? 0xffff0000u : 0x0000ffffu;
      const int64_t step = kSteps * pair + half;
      const uint32_t* b = d.b + step * d.b_stride + lane / 16 * PanelOf(d);
      const I32x16 words = LoadWords(b, d.lanes - lane);
      acc = Element::Dot(acc, Element::FromWords(words & SetI(static_cast<int32_t>(kept))),
                         Element::Broadcast(d.a, step));
    }
    Store(d.c + lane, acc);
  }
}

}  // namespace plumbline::PLUMBLINE_ISA
