// Decoding of quantised panels (packed_format.h) into float32 pair vectors, sixteen lanes at a time. For
// *_isa.cc files.
#pragma once

#include <cstdint>

#include "plumbline/kernels/gemm/gemm_tile.h"

namespace plumbline::PLUMBLINE_ISA {

// Columns 0..15 -> (0, 0, 1, 1, ..., 7, 7) and (8, 8, ..., 15, 15): the lanes of two pair vectors.
PLUMBLINE_INLINE void DuplicateLanes(F32x16 a, F32x16& low, F32x16& high) {
#if defined(__AVX512F__)
  const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  low = {_mm512_permutexvar_ps(index, a.v)};
  high = {_mm512_permutexvar_ps(_mm512_add_epi32(index, _mm512_set1_epi32(8)), a.v)};
#else
  const auto expand = [](__m256 eight) {
    const __m256 first = _mm256_unpacklo_ps(eight, eight);  // 0 0 1 1 | 4 4 5 5
    const __m256 last = _mm256_unpackhi_ps(eight, eight);   // 2 2 3 3 | 6 6 7 7
    return F32x16{_mm256_permute2f128_ps(first, last, 0x20), _mm256_permute2f128_ps(first, last, 0x31)};
  };
  low = expand(a.lo);
  high = expand(a.hi);
#endif
}

// Two pair vectors (columns 0..7 and 8..15) -> the even k and the odd k of sixteen columns.
PLUMBLINE_INLINE void SplitPairs(F32x16 low, F32x16 high, F32x16& even, F32x16& odd) {
#if defined(__AVX512F__)
  const __m512i index = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  odd = {_mm512_permutex2var_ps(low.v, index, high.v)};
  even = {_mm512_permutex2var_ps(low.v, _mm512_add_epi32(index, _mm512_set1_epi32(1)), high.v)};
#else
  const auto pick = [](__m256 a, __m256 b, auto select) {
    const __m256 mixed = select(a, b);  // of columns 0 1 4 5 | 2 3 6 7
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8));
  };
  const auto take_even = [](__m256 a, __m256 b) { return _mm256_shuffle_ps(a, b, 0xdd); };
  const auto take_odd = [](__m256 a, __m256 b) { return _mm256_shuffle_ps(a, b, 0x88); };
  even = {pick(low.lo, low.hi, take_even), pick(high.lo, high.hi, take_even)};
  odd = {pick(low.lo, low.hi, take_odd), pick(high.lo, high.hi, take_odd)};
#endif
}

// Two pair vectors rounded to bf16: the sixteen columns' pairs, even k high.
PLUMBLINE_INLINE I32x16 RoundPairs(F32x16 low, F32x16 high) {
#if defined(__AVX512BF16__)
  return {reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high.v, low.v))};
#else
  F32x16 even, odd;
  SplitPairs(low, high, even, odd);
  return PackPairs(even, odd);
#endif
}

// The decoder of one format: LoadGroup, then LoadHalf, then Value for each pair of that half and each pair
// vector. A half is 16 k, 8 pairs.
template <PackedFormat kFormat>
struct Decoder {
  static constexpr QuantLayout kLayout = Layout(kFormat);
  static constexpr bool kHalfScales = kFormat == PackedFormat::kQ6_K;

  F32x16 scale[4];
  F32x16 minimum[4];
  I32x16 low[4];
  I32x16 high[4];
  const uint8_t* bytes;

  PLUMBLINE_INLINE const uint8_t* Group(const uint8_t* block, int group) {
    return block + kLayout.HeadBytes() + group * kLayout.GroupBytes();
  }

  __attribute__((always_inline)) void SetScales(const uint8_t* block, const uint8_t* group, int half) {
    PLUMBLINE_UNROLL
    for (int i = 0; i < 2; ++i) {
      F32x16 s = WidenF16(block + 32 * i);
      if constexpr (kHalfScales) s = s * ToF32(WidenI8(group + 32 * half + 16 * i));
      if constexpr (kLayout.has_minimum) {
        F32x16 m = WidenF16(block + 64 + 32 * i);
        if constexpr (kLayout.group_scale_bytes != 0) {
          s = s * ToF32(WidenU8(group + 16 * i));
          m = m * ToF32(WidenU8(group + 32 + 16 * i));
          m = AsF32(AsI32(m) ^ SetI(INT32_MIN));  // the minimum is subtracted
        }
        DuplicateLanes(m, minimum[2 * i], minimum[2 * i + 1]);
      }
      DuplicateLanes(s, scale[2 * i], scale[2 * i + 1]);
    }
  }

  __attribute__((always_inline)) void LoadGroup(const uint8_t* block, const uint8_t* group) {
    if constexpr (!kHalfScales) SetScales(block, group, 0);
    const uint8_t* plane = group + kLayout.group_scale_bytes + kLayout.LowBytes();
    PLUMBLINE_UNROLL
    for (int v = 0; v < 4; ++v) {
      if constexpr (kLayout.high_bits == 1) high[v] = WidenU16(plane + 32 * v);
      if constexpr (kLayout.high_bits == 2) high[v] = LoadI(plane + 64 * v);
    }
  }

  __attribute__((always_inline)) void LoadHalf(const uint8_t* block, const uint8_t* group, int half) {
    if constexpr (kHalfScales) SetScales(block, group, half);
    const uint8_t* q = group + kLayout.group_scale_bytes;
    if constexpr (kLayout.low_bits == 8) {
      bytes = q + half * 512;
    } else {
      PLUMBLINE_UNROLL
      for (int v = 0; v < 4; ++v) low[v] = LoadI(q + half * 256 + v * 64);
    }
  }

  // q - offset of pair 8 kHalf + kPair as float32.
  template <int kHalf, int kPair>
  __attribute__((always_inline)) F32x16 Quant(int v) const {
    if constexpr (kLayout.low_bits == 8) return ToF32(WidenI8(bytes + (kPair * 4 + v) * 16));
    const I32x16 nibble = ShiftRight<4 * kPair>(low[v]);
#if defined(__AVX512F__)
    if constexpr (kLayout.high_bits == 0) {
      // The permute looks at the low four bits of an index only.
      constexpr float o = -static_cast<float>(kLayout.offset);
      const __m512 table = _mm512_setr_ps(o, o + 1, o + 2, o + 3, o + 4, o + 5, o + 6, o + 7, o + 8, o + 9,
                                          o + 10, o + 11, o + 12, o + 13, o + 14, o + 15);
      return {_mm512_permutexvar_ps(nibble.v, table)};
    }
#endif
    I32x16 q = nibble & SetI(15);
    if constexpr (kLayout.high_bits != 0) {
      constexpr int kAt = (8 * kHalf + kPair) * kLayout.high_bits;  // moved to bit 4
      constexpr int kMask = ((1 << kLayout.high_bits) - 1) << 4;
      if constexpr (kAt >= 4) q = q | (ShiftRight<kAt - 4>(high[v]) & SetI(kMask));
      if constexpr (kAt < 4) q = q | (ShiftLeft<4 - kAt>(high[v]) & SetI(kMask));
    }
    return ToF32(q - SetI(kLayout.offset));
  }

  template <int kHalf, int kPair>
  __attribute__((always_inline)) F32x16 Value(int v) const {
    const F32x16 q = Quant<kHalf, kPair>(v);
    if constexpr (kLayout.has_minimum) return Fma(scale[v], q, minimum[v]);
    return scale[v] * q;
  }

  // Calls sink(value[4], pair) for the 16 pairs of the group.
  template <typename Sink>
  __attribute__((always_inline)) void ForEachPair(const uint8_t* block, int group_index, Sink&& sink) {
    const uint8_t* group = Group(block, group_index);
    LoadGroup(block, group);
    LoadHalf(block, group, 0);
    Half<0>(sink);
    LoadHalf(block, group, 1);
    Half<1>(sink);
  }

  template <int kHalf, int kPair = 0, typename Sink>
  __attribute__((always_inline)) void Half(Sink&& sink) const {
    const F32x16 value[4] = {Value<kHalf, kPair>(0), Value<kHalf, kPair>(1), Value<kHalf, kPair>(2),
                             Value<kHalf, kPair>(3)};
    sink(value, 8 * kHalf + kPair);
    if constexpr (kPair < 7) Half<kHalf, kPair + 1>(sink);
  }
};

}  // namespace plumbline::PLUMBLINE_ISA
