// Rows of arrays to and from packed float32, for *_isa.cc files.
#pragma once

#include "plumbline/kernels/attention/block_dot.h"
#include "plumbline/kernels/fused_attention/fused_kernels.h"

namespace plumbline::PLUMBLINE_ISA {

static inline int64_t FusedSize(FusedType type) { return type == FusedType::kF32 ? 4 : 2; }

// n elements from p on, the other lanes 0; 0 <= n.
static inline F32x16 LoadElements(FusedType type, const char* p, int64_t n) {
  const int lanes = n >= 16 ? 16 : static_cast<int>(n);
  if (type == FusedType::kF32) {
    const auto* floats = reinterpret_cast<const float*>(p);
    return lanes == 16 ? Load(floats) : LoadN(floats, lanes);
  }
  alignas(32) uint16_t part[16];
  if (lanes < 16) {
    for (int i = 0; i < 16; ++i) part[i] = i < lanes ? reinterpret_cast<const uint16_t*>(p)[i] : uint16_t{0};
    p = reinterpret_cast<const char*>(part);
  }
  return type == FusedType::kBf16 ? AsF32(ShiftLeft<16>(WidenU16(p))) : WidenF16(p);
}

static inline void NarrowToU16(I32x16 words, uint16_t* to) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(words.v));
#else
  const __m256i packed = _mm256_packus_epi32(words.lo, words.hi);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xd8));
#endif
}

static inline void NarrowToF16(F32x16 x, uint16_t* to) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
#else
  auto* half = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(half, _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(half + 1, _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT));
#endif
}

static inline void StoreElements(FusedType type, char* p, F32x16 x, int64_t n) {
  const int lanes = n >= 16 ? 16 : static_cast<int>(n);
  if (type == FusedType::kF32) {  // a masked store is slow on some machines
    auto* floats = reinterpret_cast<float*>(p);
    return lanes == 16 ? Store(floats, x) : StoreN(floats, x, lanes);
  }
  alignas(32) uint16_t part[16];
  auto* to = lanes < 16 ? part : reinterpret_cast<uint16_t*>(p);
  if (type == FusedType::kBf16) {
    NarrowToU16(Bf16Bits(x), to);
  } else {
    NarrowToF16(x, to);
  }
  for (int i = 0; lanes < 16 && i < lanes; ++i) reinterpret_cast<uint16_t*>(p)[i] = part[i];
}

// A result of arithmetic, so no denormal, rounded to bf16, as float32.
static inline F32x16 RoundToBf16(F32x16 x) {
#if defined(__AVX512BF16__)
  return AsF32(ShiftLeft<16>({_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.v)))}));
#else
  const I32x16 bits = AsI32(x);
  const I32x16 rounded = bits + SetI(0x7fff) + (ShiftRight<16>(bits) & SetI(1));
  const I32x16 high = rounded & SetI(static_cast<int32_t>(0xffff0000u));
  return Select(IsNan(x), AsF32(SetI(0x7fc00000)), AsF32(high));
#endif
}

// Where packed columns and lanes have their steps and their sixteens of lanes (BlockDot).
static inline int64_t ColumnStride() { return kPanels ? 16 : 64; }
static inline int64_t ColumnPanel(int64_t steps) { return kPanels ? 16 * steps : 16; }
static inline int64_t LaneStride(int64_t width) { return kPanels ? 16 : width; }
static inline int64_t LanePanel() { return kPanels ? 16 * 64 : 16; }

static inline F32x16 LoadToken(const FusedSource& source, int32_t token, int64_t d) {
  if (token < 0 || d >= source.dim) return Zero();
  const char* from = source.data + (token * source.stride + d) * FusedSize(source.type);
  return LoadElements(source.type, from, source.dim - d);
}

static void PackFusedRows(const FusedSource& source, const int32_t* tokens, float* to, int64_t width) {
  for (int r = 0; r < 64; ++r, to += width) {
    for (int64_t d = 0; d < width; d += 16) Store(to + d, LoadToken(source, tokens[r], d));
  }
}

static void PackFusedLanes(const FusedSource& source, const int32_t* tokens, float* to, int64_t width) {
  for (int r = 0; r < 64; ++r, to += LaneStride(width)) {
    for (int64_t d = 0; d < width; d += 16) Store(to + d / 16 * LanePanel(), LoadToken(source, tokens[r], d));
  }
}

// Sixteen dims of sixteen tokens at a time, turned in the first-level cache.
template <class Turn>
static void TurnFusedColumns(const FusedSource& source, const int32_t* tokens, int64_t steps,
                             const Turn& turn) {
  alignas(64) float rows[16][16];
  for (int first = 0; first < 64; first += 16) {
    for (int64_t d = 0; d < steps; d += 16) {
      for (int i = 0; i < 16; ++i) Store(rows[i], LoadToken(source, tokens[first + i], d));
      turn(rows, first, d, steps - d < 16 ? steps - d : 16);
    }
  }
}

static void PackFusedColumns(const FusedSource& source, const int32_t* tokens, float* to, int64_t steps) {
  TurnFusedColumns(source, tokens, steps, [&](const float(*rows)[16], int first, int64_t d, int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      float* column = to + (d + k) * ColumnStride() + first / 16 * ColumnPanel(steps);
      for (int i = 0; i < 16; ++i) column[i] = rows[i][k];
    }
  });
}

#if defined(__AVX512BF16__)

static void PackPairLanes(const FusedSource& source, const int32_t* tokens, float* to, int64_t width) {
  for (int r = 0; r < 64; r += 2, to += width) {
    for (int64_t d = 0; d < width; d += 16) {
      StoreI(to + d, PackPairs(LoadToken(source, tokens[r], d), LoadToken(source, tokens[r + 1], d)));
    }
  }
}

static void PackPairRows(const FusedSource& source, const int32_t* tokens, float* to, int64_t width) {
  for (int r = 0; r < 64; ++r) {
    auto* row = reinterpret_cast<uint32_t*>(to + r * (width / 2));
    for (int64_t d = 0; d < width; d += 16) Bf16Element::StoreRow(row, d, LoadToken(source, tokens[r], d));
  }
  PackPairLanes(source, tokens, to + 32 * width, width);
}

static void PackPairColumns(const FusedSource& source, const int32_t* tokens, float* to, int64_t steps) {
  TurnFusedColumns(source, tokens, steps, [&](const float(*rows)[16], int first, int64_t d, int64_t count) {
    for (int64_t k = 0; k < count; k += 2) {
      auto* column = reinterpret_cast<uint32_t*>(to) + (d + k) / 2 * 64 + first;
      for (int i = 0; i < 16; ++i) {
        uint32_t even, odd;
        __builtin_memcpy(&even, &rows[i][k], 4);
        __builtin_memcpy(&odd, &rows[i][k + 1], 4);
        column[i] = even | odd >> 16;
      }
    }
  });
}

#endif

static void StoreFusedRows(const FusedTarget& target, const int32_t* tokens, int32_t count, const float* from,
                           int64_t width, float scale) {
  const int64_t size = FusedSize(target.type);
  for (int32_t r = 0; r < count; ++r, from += width) {
    if (tokens[r] < 0) continue;
    char* to = target.data + tokens[r] * target.stride * size;
    for (int64_t d = 0; d < target.dim; d += 16) {
      StoreElements(target.type, to + d * size, Load(from + d) * Set(scale), target.dim - d);
    }
  }
}

}  // namespace plumbline::PLUMBLINE_ISA
