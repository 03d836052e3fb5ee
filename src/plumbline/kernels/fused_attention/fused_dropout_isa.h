// fused_dropout.h for sixteen columns at a time, for *_isa.cc files.
#pragma once

#include "plumbline/kernels/fused_attention/fused_kernels.h"
#include "plumbline/kernels/simd/vec16.h"

namespace plumbline::PLUMBLINE_ISA {

// The upper and lower halves of a * x.
static inline void MultiplyWide(I32x16 a, uint32_t x, I32x16* high, I32x16* low) {
#if defined(__AVX512F__)
  const __m512i factor = _mm512_set1_epi32(static_cast<int32_t>(x));
  const __m512i even = _mm512_mul_epu32(a.v, factor);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), factor);
  high->v = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
  low->v = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
#else
  const __m256i factor = _mm256_set1_epi32(static_cast<int32_t>(x));
  const auto halves = [&](__m256i part, __m256i* h, __m256i* l) {
    const __m256i even = _mm256_mul_epu32(part, factor);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(part, 32), factor);
    *h = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    *l = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  };
  halves(a.lo, &high->lo, &low->lo);
  halves(a.hi, &high->hi, &low->hi);
#endif
}

// Philox4x32 of sixteen counters (batch, head, row, last[lane]).
static inline void Philox16(const uint32_t* seed, uint32_t batch, uint32_t head, uint32_t row, I32x16 last,
                            I32x16* words) {
  I32x16 c0 = SetI(static_cast<int32_t>(batch)), c1 = SetI(static_cast<int32_t>(head));
  I32x16 c2 = SetI(static_cast<int32_t>(row)), c3 = last;
  uint32_t key0 = seed[0], key1 = seed[1];
  for (int round = 0; round < 10; ++round) {
    I32x16 high0, low0, high1, low1;
    MultiplyWide(c0, 0xD2511F53u, &high0, &low0);
    MultiplyWide(c2, 0xCD9E8D57u, &high1, &low1);
    c0 = high1 ^ c1 ^ SetI(static_cast<int32_t>(key0));
    c1 = low1;
    c2 = high0 ^ c3 ^ SetI(static_cast<int32_t>(key1));
    c3 = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

// Lanes of `words` below the threshold, unsigned.
static inline Mask16 AtLeast(I32x16 words, uint32_t threshold) {
  const I32x16 high = ShiftRight<16>(words), low = words & SetI(0xffff);
  const F32x16 h = ToF32(high), l = ToF32(low);
  const F32x16 th = Set(static_cast<float>(threshold >> 16)),
               tl = Set(static_cast<float>(threshold & 0xffff));
  return (h > th) | ((h == th) & ~(l < tl));
}

// Which of the 64 keys of a block row `row` keeps. Columns that follow one another from a multiple of 64 on
// share their counters.
static inline void KeepOfRow(const FusedCall& call, uint32_t batch, uint32_t head, uint32_t row,
                             const uint32_t* columns, bool aligned, Mask16* keep) {
  alignas(64) uint32_t lanes[16];
  I32x16 words[4];
  if (aligned) {
    for (uint32_t i = 0; i < 16; ++i) lanes[i] = columns[0] / 64 * 16 + i;
    Philox16(call.seed, batch, head, row, LoadI(lanes), words);
    for (int v = 0; v < 4; ++v) keep[v] = AtLeast(words[v], call.threshold);
    return;
  }
  for (int v = 0; v < 4; ++v) {
    alignas(64) uint32_t word[16];
    for (int i = 0; i < 16; ++i) {
      const uint32_t column = columns[16 * v + i];
      lanes[i] = column / 64 * 16 + column % 16;
      word[i] = column / 16 % 4;
    }
    Philox16(call.seed, batch, head, row, LoadI(lanes), words);
    I32x16 chosen = words[0];
    for (int w = 1; w < 4; ++w) chosen = SelectI(EqualI(LoadI(word), SetI(w)), words[w], chosen);
    keep[v] = AtLeast(chosen, call.threshold);
  }
}

}  // namespace plumbline::PLUMBLINE_ISA
