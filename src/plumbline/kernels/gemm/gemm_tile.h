// Pieces shared by the tile kernels: the dyadic tree over leaves as a binary counter, and the store.
// For *_isa.cc files.
#pragma once

#include <cstdint>

#include "plumbline/kernels/gemm/gemm_kernels.h"
#include "plumbline/kernels/simd/vec16.h"

#define PLUMBLINE_INLINE static inline __attribute__((always_inline))
#define PLUMBLINE_UNROLL _Pragma("GCC unroll 32")

namespace plumbline::PLUMBLINE_ISA {

// Panels that are read once come from memory, and where computing on them leaves few loads in flight the
// machine's own prefetching stays too close: it is asked for what is this far ahead.
#if defined(__AVX512F__)
inline constexpr int kPrefetchBytes = 4096;
inline constexpr auto kPrefetchInto = _MM_HINT_T0;
#else
inline constexpr int kPrefetchBytes = 2048;
inline constexpr auto kPrefetchInto = _MM_HINT_T1;
#endif

template <int kLines>
PLUMBLINE_INLINE void PrefetchLines(const void* data) {
  PLUMBLINE_UNROLL
  for (int i = 0; i < kLines; ++i)
    _mm_prefetch(static_cast<const char*>(data) + kPrefetchBytes + 64 * i, kPrefetchInto);
}

// Level l holds the finished node(l, .) whose sibling is still to come, for a whole tile.
inline constexpr int kMaxLevels = 40;
template <int kRows, int kVectors>
struct TileStack {
  alignas(64) float level[kMaxLevels][kRows * kVectors * 16];
};

template <int kRows, int kVectors>
PLUMBLINE_INLINE void AddNode(F32x16 (&acc)[kRows][kVectors], const float* node) {
  PLUMBLINE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    PLUMBLINE_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[r][v] = Load(node + (r * kVectors + v) * 16) + acc[r][v];
  }
}

// After leaf `index` of a tree that goes on: fold finished pairs and put the node away.
template <int kRows, int kVectors>
PLUMBLINE_INLINE void FoldLeaf(F32x16 (&acc)[kRows][kVectors], int64_t index,
                               TileStack<kRows, kVectors>& stack) {
  int level = 0;
  for (; (index >> level) & 1; ++level) AddNode<kRows, kVectors>(acc, stack.level[level]);
  PLUMBLINE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    PLUMBLINE_UNROLL
    for (int v = 0; v < kVectors; ++v) Store(stack.level[level] + (r * kVectors + v) * 16, acc[r][v]);
  }
}

// After the last leaf `index`: a missing right child passes its left sibling up, so every waiting node is
// met in turn.
template <int kRows, int kVectors>
PLUMBLINE_INLINE void FoldLast(F32x16 (&acc)[kRows][kVectors], int64_t index,
                               TileStack<kRows, kVectors>& stack) {
  for (int level = 0; (index >> level) != 0; ++level) {
    if ((index >> level) & 1) AddNode<kRows, kVectors>(acc, stack.level[level]);
  }
}

template <int kRows, int kVectors>
PLUMBLINE_INLINE void StoreTile(F32x16 (&acc)[kRows][kVectors], const TileArgs& args) {
  PLUMBLINE_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const int64_t left = args.columns - 16 * v;
    if (left <= 0) return;
    const int lanes = left < 16 ? static_cast<int>(left) : 16;
    PLUMBLINE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float* y = args.y + r * args.y_stride + 16 * v;
      F32x16 value = acc[r][v];
      if (args.bias != nullptr) value = value + LoadN(args.bias + 16 * v, lanes);
      if (args.accumulate) value = LoadN(y, lanes) + value;
      StoreN(y, value, lanes);
    }
  }
}

// Runs `leaf_chain(acc, k_begin, k_end)`, which starts from zero, over the leaves and their tree.
template <int kRows, int kVectors, typename LeafChain>
PLUMBLINE_INLINE void RunLeaves(const TileArgs& args, LeafChain&& leaf_chain) {
  TileStack<kRows, kVectors> stack;
  F32x16 acc[kRows][kVectors];
  int64_t index = 0;
  for (int64_t begin = 0;; begin += args.leaf, ++index) {
    PLUMBLINE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      PLUMBLINE_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = Zero();
    }
    const bool last = begin + args.leaf >= args.k;
    leaf_chain(acc, begin, last ? args.k : begin + args.leaf);
    if (last) break;
    FoldLeaf<kRows, kVectors>(acc, index, stack);
  }
  FoldLast<kRows, kVectors>(acc, index, stack);
  StoreTile<kRows, kVectors>(acc, args);
}

}  // namespace plumbline::PLUMBLINE_ISA
