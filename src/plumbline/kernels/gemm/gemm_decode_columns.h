// Decoding of quantised panels in column order (packed_format.h) into float32, sixteen columns of one k at a
// time. For *_isa.cc files.
#pragma once

#include <cstdint>

#include "plumbline/kernels/gemm/gemm_decode.h"

namespace plumbline::PLUMBLINE_ISA {

// F32ToBf16 of a decoded value that is finite and at least 2^-100 or zero, as a float32, by two roundings of
// the machine's own: 65535 v is rounded to multiples of bf16's unit u = 2^(e - 7) (of u / 2 where v is within
// 2^-16 of the power of two 2^e, which the nearest multiple of u still is). As 65536 v is a multiple of u, an
// even one where v is a tie, 65536 v less that is v rounded to nearest even. Of a zero the sign is lost:
// kSigned brings it back.
template <bool kSigned>
PLUMBLINE_INLINE F32x16 RoundPlain(F32x16 value) {
  const F32x16 rounded = Fma(value, Set(65536.0f), value * Set(-65535.0f));
  if constexpr (!kSigned) return rounded;
  return AsF32(Merge(AsI32(value), SetI(INT32_MIN), AsI32(rounded)));
}

// The decoder of one format in column order. Words are read at the byte that holds a code, so that the code
// lies in the lowest bits, or four bits up, without a shift.
//
// kExact (Decoding::kExact) spares the subtraction: code c under the exponent of B is the float B + c, and
// fma(scale, B + c, minimum - B scale) is rounded once, from the very number that fma(scale, c, minimum) is.
template <PackedFormat kFormat, bool kExact>
struct ColumnDecoder {
  static constexpr QuantLayout kLayout = Layout(kFormat);
  static constexpr bool kHalfScales = kFormat == PackedFormat::kQ6_K;
  static constexpr int kWordCodes = 32 / kLayout.low_bits;
  static constexpr int kWords = 32 / kWordCodes;

  F32x16 scale[2];
  F32x16 minimum[2];
  F32x16 lowered[2];  // kExact: less kBias scales
  // The byte before a code's own is read too, which puts a byte at bit 8 and an upper nibble at bit 12.
  static constexpr int kExactAt = kLayout.low_bits == 8 ? 8 : 12;
  static constexpr float kBias = static_cast<float>(1 << (23 - kExactAt));

  __attribute__((always_inline)) void SetScales(const uint8_t* block, const uint8_t* group, int half) {
    PLUMBLINE_UNROLL
    for (int i = 0; i < 2; ++i) {
      scale[i] = CanonicalNan(WidenF16(block + 32 * i));
      if constexpr (kHalfScales) scale[i] = scale[i] * ToF32(WidenI8(group + 32 * half + 16 * i));
      if constexpr (kLayout.has_minimum) {
        minimum[i] = CanonicalNan(WidenF16(block + 64 + 32 * i));
        if constexpr (kLayout.group_scale_bytes != 0) {
          scale[i] = scale[i] * ToF32(WidenU8(group + 16 * i));
          minimum[i] = minimum[i] * ToF32(WidenU8(group + 32 + 16 * i));
          minimum[i] = AsF32(AsI32(minimum[i]) ^ SetI(INT32_MIN));  // the minimum is subtracted
        }
      }
      if constexpr (kExact) {
        const F32x16 bias = Set(-kBias - static_cast<float>(kLayout.offset));
        if constexpr (kLayout.has_minimum) lowered[i] = Fma(scale[i], bias, minimum[i]);
        if constexpr (!kLayout.has_minimum) lowered[i] = scale[i] * bias;
      }
    }
  }

  // code - offset of code kCode of the word at `words`, as float32; `high`: the byte of its upper bits, which
  // lie kCode elements from bit 0 on.
  template <int kCode>
  static __attribute__((always_inline)) F32x16 Quant(const uint8_t* words, const uint8_t* high) {
    constexpr int kBit = kLayout.low_bits * kCode;
    constexpr int kAt = kBit % 8;
    constexpr int32_t kBase = (127 + 23 - kAt) << 23;
    constexpr float kSubtract = static_cast<float>(1 << (23 - kAt)) + static_cast<float>(kLayout.offset);
    const I32x16 word = LoadI(words + kBit / 8);
#if defined(__AVX512F__)
    // A permutation indexed by the lowest four bits of each lane needs no mask.
    if constexpr (kLayout.low_bits == 4 && kLayout.high_bits == 0 && kAt == 0) return NibbleValue(word);
#endif
    I32x16 bits = Merge(word, SetI(((1 << kLayout.low_bits) - 1) << kAt), SetI(kBase));
    if constexpr (kLayout.high_bits != 0) {
      constexpr int kFrom = kCode * kLayout.high_bits;
      constexpr int kTo = kAt + 4;
      const I32x16 mask = SetI(((1 << kLayout.high_bits) - 1) << kTo);
      const I32x16 upper = LoadI(high);
      if constexpr (kFrom >= kTo) bits = Merge(ShiftRight<kFrom - kTo>(upper), mask, bits);
      if constexpr (kFrom < kTo) bits = Merge(ShiftLeft<kTo - kFrom>(upper), mask, bits);
    }
    return AsF32(bits) - Set(kSubtract);
  }

#if defined(__AVX512F__)
  static __attribute__((always_inline)) F32x16 NibbleValue(I32x16 word) {
    constexpr float o = static_cast<float>(-kLayout.offset);
    const __m512 codes = _mm512_setr_ps(o, o + 1, o + 2, o + 3, o + 4, o + 5, o + 6, o + 7, o + 8, o + 9,
                                        o + 10, o + 11, o + 12, o + 13, o + 14, o + 15);
    return {_mm512_permutexvar_ps(word.v, codes)};
  }
#endif

  template <int kCode>
  __attribute__((always_inline)) F32x16 Value(int i, const uint8_t* words, const uint8_t* high) const {
    constexpr int kBit = kLayout.low_bits * kCode;
    if constexpr (kExact && (kLayout.low_bits == 8 || kBit % 8 == 4)) {
      constexpr int32_t kMask = ((1 << kLayout.low_bits) - 1) << kExactAt;
      constexpr int32_t kBase = (127 + 23 - kExactAt) << 23;
      const I32x16 word = LoadI(words + 64 * i + kBit / 8 - 1);
      return Fma(scale[i], AsF32(Merge(word, SetI(kMask), SetI(kBase))), lowered[i]);
    }
    const F32x16 q = Quant<kCode>(words + 64 * i, high + 64 * i);
    if constexpr (kLayout.has_minimum) return Fma(scale[i], q, minimum[i]);
    return scale[i] * q;
  }

  // Calls sink(value[2], k) for the 32 k of the group.
  template <typename Sink>
  __attribute__((always_inline)) void ForEachK(const uint8_t* block, int group_index, Sink&& sink) {
    const uint8_t* group = block + kLayout.HeadBytes() + group_index * kLayout.GroupBytes();
    if constexpr (!kHalfScales) SetScales(block, group, 0);
    if (group_index == 0) PrefetchLines<kLayout.HeadBytes() / 64>(block);
    const uint8_t* low = group + kLayout.group_scale_bytes;
    const uint8_t* plane = low + kLayout.LowBytes();
#pragma GCC unroll 1
    for (int word = 0; word < kWords; ++word) {
      if constexpr (kHalfScales) {
        if (word % (kWords / 2) == 0) SetScales(block, group, word / (kWords / 2));
      }
      PrefetchLines<(kLayout.GroupBytes() + 64 * kWords - 1) / (64 * kWords)>(
          group + word * kLayout.GroupBytes() / kWords);
      // The upper bits of eight codes: one byte of 32 k, or two of the sixteen k of a word.
      const uint8_t* high = kLayout.high_bits == 2 ? plane + word / 2 * 128 + word % 2 * 2 : plane + word;
      Code<0>(low + 128 * word, high, word * kWordCodes, sink);
    }
  }

  template <int kCode, typename Sink>
  __attribute__((always_inline)) void Code(const uint8_t* words, const uint8_t* high, int first_k,
                                           Sink&& sink) {
    const F32x16 value[2] = {Value<kCode>(0, words, high), Value<kCode>(1, words, high)};
    sink(value, first_k + kCode);
    if constexpr (kCode + 1 < kWordCodes) Code<kCode + 1>(words, high, first_k, sink);
  }
};

}  // namespace plumbline::PLUMBLINE_ISA
