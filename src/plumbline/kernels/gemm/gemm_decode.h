// Decoding of quantised panels (packed_format.h) into float32 pair vectors, sixteen lanes at a time. For
// *_isa.cc files.
#pragma once

#include <cstdint>

#include "plumbline/kernels/gemm/gemm_tile.h"

namespace plumbline::PLUMBLINE_ISA {

// Sixteen scales in ScalePosition order -> the lanes of two pair vectors.
PLUMBLINE_INLINE void DuplicateLanes(F32x16 a, F32x16& low, F32x16& high) {
#if defined(__AVX512F__)
  low = {_mm512_moveldup_ps(a.v)};
  high = {_mm512_movehdup_ps(a.v)};
#else
  low = {_mm256_moveldup_ps(a.lo), _mm256_moveldup_ps(a.hi)};
  high = {_mm256_movehdup_ps(a.lo), _mm256_movehdup_ps(a.hi)};
#endif
}

// (bits & mask) | base.
PLUMBLINE_INLINE I32x16 Merge(I32x16 bits, I32x16 mask, I32x16 base) {
#if defined(__AVX512F__)
  return {_mm512_ternarylogic_epi32(bits.v, mask.v, base.v, 0xea)};
#else
  return (bits & mask) | base;
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
#if defined(__AVX512BF16__)
PLUMBLINE_INLINE I32x16 RoundPairs(F32x16 low, F32x16 high) {
  return {reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high.v, low.v))};
}
#endif

// F32ToBf16 for decoded values: they are zero or normal, and their NaN are made from CanonicalNan, so neither
// denormals nor a carry out of a NaN's payload need care.
PLUMBLINE_INLINE F32x16 RoundDecoded(F32x16 value) {
  const I32x16 bits = AsI32(value);
  const I32x16 rounded = bits + SetI(0x7fff) + (ShiftRight<16>(bits) & SetI(1));
  return AsF32(rounded & SetI(static_cast<int32_t>(0xffff0000u)));
}

PLUMBLINE_INLINE F32x16 CanonicalNan(F32x16 value) {
  return Select(IsNan(value), AsF32(SetI(0x7fc00000)), value);
}

// The decoder of one format: a group of 32 k in two halves of eight pairs.
//
// An unsigned code in bits [s, s + b) of a word becomes a float without a shift or a conversion: under the
// exponent of 2^(23 - s) those bits are worth code, so (word & mask) | 2^(23 - s) is 2^(23 - s) + code, and
// subtracting 2^(23 - s) + offset is exact. Codes above bit 22 take one shift of the whole word first.
template <PackedFormat kFormat>
struct Decoder {
  static constexpr QuantLayout kLayout = Layout(kFormat);
  static constexpr bool kHalfScales = kFormat == PackedFormat::kQ6_K;
  static constexpr int kWordPairs = 32 / kLayout.low_bits;
  static constexpr int kHalfPairs = 8;
  static constexpr int kHalfBytes = kLayout.LowBytes() / 2;
  static constexpr int kUnshifted = kLayout.low_bits == 4 ? 5 : 2;  // codes that lie below bit 23

  F32x16 scale[4];
  F32x16 minimum[4];
  I32x16 word[4];
  I32x16 high[4];

  __attribute__((always_inline)) void SetScales(const uint8_t* block, const uint8_t* group, int half) {
    PLUMBLINE_UNROLL
    for (int i = 0; i < 2; ++i) {
      F32x16 s = CanonicalNan(WidenF16(block + 32 * i));
      if constexpr (kHalfScales) s = s * ToF32(WidenI8(group + 32 * half + 16 * i));
      if constexpr (kLayout.has_minimum) {
        F32x16 m = CanonicalNan(WidenF16(block + 64 + 32 * i));
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

  __attribute__((always_inline)) void LoadHigh(const uint8_t* plane) {
    PLUMBLINE_UNROLL
    for (int v = 0; v < 4; ++v) {
      if constexpr (kLayout.high_bits == 1) high[v] = WidenU16(plane + 32 * v);
      if constexpr (kLayout.high_bits == 2) high[v] = LoadI(plane + 64 * v);
    }
  }

#if defined(__AVX512F__)
  // Four-bit codes at bit 0: a permutation indexed by the low four bits of each lane needs no mask.
  __attribute__((always_inline)) F32x16 LowNibble(int v) const {
    constexpr float o = static_cast<float>(-kLayout.offset);
    const __m512 codes = _mm512_setr_ps(o, o + 1, o + 2, o + 3, o + 4, o + 5, o + 6, o + 7, o + 8, o + 9,
                                        o + 10, o + 11, o + 12, o + 13, o + 14, o + 15);
    return {_mm512_permutexvar_ps(word[v].v, codes)};
  }
#endif

  // code - offset of pair kPair of the half as float32; `word` holds its word, shifted where kPair needs it.
  template <int kPair>
  __attribute__((always_inline)) F32x16 Quant(int v) const {
    constexpr int kInWord = kPair % kWordPairs;
    constexpr int kAt = kLayout.low_bits * (kInWord < kUnshifted ? kInWord : kInWord - kUnshifted);
    constexpr int32_t kBase = (127 + 23 - kAt) << 23;
    constexpr float kSubtract = static_cast<float>(1 << (23 - kAt)) + static_cast<float>(kLayout.offset);
#if defined(__AVX512F__)
    if constexpr (kLayout.low_bits == 4 && kLayout.high_bits == 0 && kAt == 0) return LowNibble(v);
#endif
    I32x16 bits = Merge(word[v], SetI(((1 << kLayout.low_bits) - 1) << kAt), SetI(kBase));
    if constexpr (kLayout.high_bits != 0) {
      constexpr int kFrom = kPair * kLayout.high_bits;
      constexpr int kTo = kAt + 4;
      const I32x16 mask = SetI(((1 << kLayout.high_bits) - 1) << kTo);
      if constexpr (kFrom >= kTo) bits = Merge(ShiftRight<kFrom - kTo>(high[v]), mask, bits);
      if constexpr (kFrom < kTo) bits = Merge(ShiftLeft<kTo - kFrom>(high[v]), mask, bits);
    }
    return AsF32(bits) - Set(kSubtract);
  }

  template <int kPair>
  __attribute__((always_inline)) F32x16 Value(int v) const {
    const F32x16 q = Quant<kPair>(v);
    if constexpr (kLayout.has_minimum) return Fma(scale[v], q, minimum[v]);
    return scale[v] * q;
  }

  // Calls sink(value[4], pair) for the 16 pairs of the group.
  template <typename Sink>
  __attribute__((always_inline)) void ForEachPair(const uint8_t* block, int group_index, Sink&& sink) {
    const uint8_t* group = block + kLayout.HeadBytes() + group_index * kLayout.GroupBytes();
    if constexpr (!kHalfScales) SetScales(block, group, 0);
    const uint8_t* words = group + kLayout.group_scale_bytes;
    LoadHigh(words + kLayout.LowBytes());
#pragma GCC unroll 1
    for (int half = 0; half < 2; ++half) {
      if constexpr (kHalfScales) SetScales(block, group, half);
      Pair<0>(words + half * kHalfBytes, half * kHalfPairs, sink);
      if constexpr (kLayout.high_bits != 0) {
        PLUMBLINE_UNROLL
        for (int v = 0; v < 4; ++v) high[v] = ShiftRight<kHalfPairs * kLayout.high_bits>(high[v]);
      }
    }
  }

  // Pair kPair of the half whose words begin at `words`, and those after it.
  template <int kPair, typename Sink>
  __attribute__((always_inline)) void Pair(const uint8_t* words, int first_pair, Sink&& sink) {
    PLUMBLINE_UNROLL
    for (int v = 0; v < 4; ++v) {
      if constexpr (kPair % kWordPairs == 0) word[v] = LoadI(words + kPair / kWordPairs * 256 + 64 * v);
      if constexpr (kPair % kWordPairs == kUnshifted)
        word[v] = ShiftRight<kUnshifted * kLayout.low_bits>(word[v]);
    }
    const F32x16 value[4] = {Value<kPair>(0), Value<kPair>(1), Value<kPair>(2), Value<kPair>(3)};
    sink(value, first_pair + kPair);
    if constexpr (kPair + 1 < kHalfPairs) Pair<kPair + 1>(words, first_pair, sink);
  }
};

}  // namespace plumbline::PLUMBLINE_ISA
