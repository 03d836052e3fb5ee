// Sixteen float32 or int32 lanes on every instruction set, so one kernel source serves them all: two
// __m256 on AVX2, one __m512 on AVX-512. Include only from *_isa.cc files; everything lives in the
// namespace PLUMBLINE_ISA of the instruction set the file is being compiled for, so that no inline
// function compiled for one can be linked into another.
//
// Arithmetic is IEEE single, one operation a call: nothing here contracts, reorders or approximates.
#pragma once

// GCC 12 takes the deliberately undefined operand inside its own AVX-512 intrinsics for an uninitialised one.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

#ifndef PLUMBLINE_ISA
#error "vec16.h is for *_isa.cc files (see cmake/PlumblineLayer.cmake)"
#endif

namespace plumbline::PLUMBLINE_ISA {

#if defined(__AVX512F__)

struct Mask16 {
  __mmask16 m;
};
struct I32x16 {
  __m512i v;
};
struct F32x16 {
  __m512 v;
};

static inline F32x16 Zero() { return {_mm512_setzero_ps()}; }
static inline F32x16 Set(float x) { return {_mm512_set1_ps(x)}; }
static inline F32x16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
static inline void Store(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
static inline Mask16 FirstN(int n) { return {static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << n) - 1u)}; }
// Lanes n and above read as zero and their memory is not touched.
static inline F32x16 LoadN(const float* p, int n) { return {_mm512_maskz_loadu_ps(FirstN(n).m, p)}; }
static inline void StoreN(float* p, F32x16 a, int n) { _mm512_mask_storeu_ps(p, FirstN(n).m, a.v); }
static inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
static inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
static inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
static inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
static inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// c - a * b, rounded once.
static inline F32x16 Fnma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
static inline F32x16 Sqrt(F32x16 a) { return {_mm512_sqrt_ps(a.v)}; }
// maxps / minps: the second operand where either is NaN or both are zero.
static inline F32x16 MaxPs(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
static inline F32x16 MinPs(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
static inline Mask16 operator<(F32x16 a, F32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
static inline Mask16 operator>(F32x16 a, F32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
static inline Mask16 operator==(F32x16 a, F32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
static inline Mask16 IsNan(F32x16 a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
static inline Mask16 operator&(Mask16 a, Mask16 b) { return {static_cast<__mmask16>(a.m & b.m)}; }
static inline Mask16 operator|(Mask16 a, Mask16 b) { return {static_cast<__mmask16>(a.m | b.m)}; }
static inline Mask16 operator~(Mask16 a) { return {static_cast<__mmask16>(~a.m)}; }
static inline uint32_t Bits(Mask16 a) { return a.m; }
static inline F32x16 Select(Mask16 m, F32x16 yes, F32x16 no) {
  return {_mm512_mask_blend_ps(m.m, no.v, yes.v)};
}

static inline I32x16 SetI(int32_t x) { return {_mm512_set1_epi32(x)}; }
static inline I32x16 LoadI(const void* p) { return {_mm512_loadu_si512(p)}; }
static inline void StoreI(void* p, I32x16 a) { _mm512_storeu_si512(p, a.v); }
static inline I32x16 operator+(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
static inline I32x16 operator-(I32x16 a, I32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
static inline I32x16 operator&(I32x16 a, I32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
static inline I32x16 operator|(I32x16 a, I32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
static inline I32x16 operator^(I32x16 a, I32x16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int kBits>
static inline I32x16 ShiftLeft(I32x16 a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
template <int kBits>
static inline I32x16 ShiftRight(I32x16 a) {
  return {_mm512_srli_epi32(a.v, kBits)};
}  // logical
template <int kBits>
static inline I32x16 ShiftRightArith(I32x16 a) {
  return {_mm512_srai_epi32(a.v, kBits)};
}
static inline Mask16 EqualI(I32x16 a, I32x16 b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
static inline I32x16 SelectI(Mask16 m, I32x16 yes, I32x16 no) {
  return {_mm512_mask_blend_epi32(m.m, no.v, yes.v)};
}
static inline F32x16 AsF32(I32x16 a) { return {_mm512_castsi512_ps(a.v)}; }
static inline I32x16 AsI32(F32x16 a) { return {_mm512_castps_si512(a.v)}; }
static inline F32x16 ToF32(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
static inline I32x16 RoundToI32(F32x16 a) { return {_mm512_cvtps_epi32(a.v)}; }  // nearest even
static inline F32x16 Round(F32x16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
static inline I32x16 WidenU8(const void* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
static inline I32x16 WidenI8(const void* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
static inline I32x16 WidenU16(const void* p) {
  return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
static inline F32x16 WidenF16(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}

#else  // AVX2

struct Mask16 {
  __m256 lo, hi;
};
struct I32x16 {
  __m256i lo, hi;
};
struct F32x16 {
  __m256 lo, hi;
};

static inline F32x16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline F32x16 Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline F32x16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void Store(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
static inline Mask16 FirstN(int n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane)),
          _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lane))};
}
static inline F32x16 LoadN(const float* p, int n) {
  const Mask16 m = FirstN(n);
  return {_mm256_maskload_ps(p, _mm256_castps_si256(m.lo)),
          _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.hi))};
}
static inline void StoreN(float* p, F32x16 a, int n) {
  if (n >= 16) return Store(p, a);  // masked stores take several times as long on some processors
  const Mask16 m = FirstN(n);
  _mm256_maskstore_ps(p, _mm256_castps_si256(m.lo), a.lo);
  _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.hi), a.hi);
}
static inline F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static inline F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static inline F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static inline F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
static inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline F32x16 Fnma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
static inline F32x16 Sqrt(F32x16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
static inline F32x16 MaxPs(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
static inline F32x16 MinPs(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
static inline Mask16 operator<(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
static inline Mask16 operator>(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ)};
}
static inline Mask16 operator==(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
static inline Mask16 IsNan(F32x16 a) {
  return {_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)};
}
static inline Mask16 operator&(Mask16 a, Mask16 b) {
  return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)};
}
static inline Mask16 operator|(Mask16 a, Mask16 b) {
  return {_mm256_or_ps(a.lo, b.lo), _mm256_or_ps(a.hi, b.hi)};
}
static inline Mask16 operator~(Mask16 a) {
  const __m256 ones = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  return {_mm256_xor_ps(a.lo, ones), _mm256_xor_ps(a.hi, ones)};
}
static inline uint32_t Bits(Mask16 a) {
  return static_cast<uint32_t>(_mm256_movemask_ps(a.lo)) | static_cast<uint32_t>(_mm256_movemask_ps(a.hi))
                                                               << 8;
}
static inline F32x16 Select(Mask16 m, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}

static inline I32x16 SetI(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
static inline I32x16 LoadI(const void* p) {
  const auto* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
static inline void StoreI(void* p, I32x16 a) {
  auto* q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, a.lo);
  _mm256_storeu_si256(q + 1, a.hi);
}
static inline I32x16 operator+(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
static inline I32x16 operator-(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
static inline I32x16 operator&(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
static inline I32x16 operator|(I32x16 a, I32x16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
static inline I32x16 operator^(I32x16 a, I32x16 b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
template <int kBits>
static inline I32x16 ShiftLeft(I32x16 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
template <int kBits>
static inline I32x16 ShiftRight(I32x16 a) {
  return {_mm256_srli_epi32(a.lo, kBits), _mm256_srli_epi32(a.hi, kBits)};
}
template <int kBits>
static inline I32x16 ShiftRightArith(I32x16 a) {
  return {_mm256_srai_epi32(a.lo, kBits), _mm256_srai_epi32(a.hi, kBits)};
}
static inline Mask16 EqualI(I32x16 a, I32x16 b) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.lo, b.lo)),
          _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.hi, b.hi))};
}
static inline F32x16 AsF32(I32x16 a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
static inline I32x16 AsI32(F32x16 a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
static inline I32x16 SelectI(Mask16 m, I32x16 yes, I32x16 no) {
  return AsI32(Select(m, AsF32(yes), AsF32(no)));
}
static inline F32x16 ToF32(I32x16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
static inline I32x16 RoundToI32(F32x16 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
static inline F32x16 Round(F32x16 a) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kNearest), _mm256_round_ps(a.hi, kNearest)};
}
static inline I32x16 WidenU8(const void* p) {
  const __m128i v = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))};
}
static inline I32x16 WidenI8(const void* p) {
  const __m128i v = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))};
}
static inline I32x16 WidenU16(const void* p) {
  const auto* q = static_cast<const __m128i*>(p);
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), _mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1))};
}
static inline F32x16 WidenF16(const void* p) {
  const auto* q = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}

#endif

// ---- Operations built from the above, the same steps on every instruction set. ----

// A bf16 pair sits in one 32-bit lane: the even (earlier) k in the high half, the odd k in the low half.
static inline F32x16 PairHigh(I32x16 pairs) { return AsF32(pairs & SetI(static_cast<int32_t>(0xffff0000u))); }
static inline F32x16 PairLow(I32x16 pairs) { return AsF32(ShiftLeft<16>(pairs)); }

// acc = fma(even_a, even_b, acc); acc = fma(odd_a, odd_b, acc): numerics contract, section 3.
static inline F32x16 DotPairs(F32x16 acc, I32x16 a, I32x16 b) {
#if defined(__AVX512BF16__)
  return {_mm512_dpbf16_ps(acc.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
#else
  acc = Fma(PairHigh(a), PairHigh(b), acc);
  return Fma(PairLow(a), PairLow(b), acc);
#endif
}

// float32 -> bf16 bits in the low half of each lane, as F32ToBf16 (base/float16.h) defines it.
static inline I32x16 Bf16Bits(F32x16 x) {
  const I32x16 bits = AsI32(x);
  const I32x16 rounded = bits + SetI(0x7fff) + (ShiftRight<16>(bits) & SetI(1));
  const Mask16 denormal = EqualI(bits & SetI(0x7f800000), SetI(0));
  I32x16 result = ShiftRight<16>(rounded);
  result = SelectI(denormal, ShiftRight<16>(bits) & SetI(0x8000), result);
  return SelectI(IsNan(x), ShiftRight<16>(bits) | SetI(0x0040), result);
}

// Two vectors of consecutive k rounded to bf16 and joined into pairs.
static inline I32x16 PackPairs(F32x16 even, F32x16 odd) {
#if defined(__AVX512BF16__)
  // Lanes 0..15 of the result are `odd`, 16..31 `even`; interleave them as (odd low, even high).
  const __m512i both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(even.v, odd.v));
  const __m512i odd_part = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
  const __m512i even_part = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
  return {_mm512_or_si512(odd_part, _mm512_slli_epi32(even_part, 16))};
#else
  return ShiftLeft<16>(Bf16Bits(even)) | Bf16Bits(odd);
#endif
}

// Maximum that propagates NaN (a canonical quiet NaN); of two zeros the second operand's.
static inline F32x16 MaxNan(F32x16 a, F32x16 b) {
  return Select(IsNan(a) | IsNan(b), AsF32(SetI(0x7fc00000)), MaxPs(a, b));
}

// The tree over 16 lanes: node(L + 1, i) = node(L, 2i) + node(L, 2i + 1).
static inline float TreeSum(F32x16 a) {
  alignas(64) float lane[16];
  Store(lane, a);
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = lane[2 * i] + lane[2 * i + 1];
  }
  return lane[0];
}

// Maximum over 16 lanes; NaN propagates.
static inline float MaxLane(F32x16 a) {
  alignas(64) float lane[16];
  Store(lane, a);
  float m = lane[0];
  for (int i = 1; i < 16; ++i) m = (lane[i] > m || lane[i] != lane[i]) ? lane[i] : m;
  return m;
}

}  // namespace plumbline::PLUMBLINE_ISA
