// The AVX-512 intrinsics of the *_isa.cc files by loops over lanes, for a machine that has none: forced into
// the files of the instruction sets avx512 and avx512_bf16 when PLUMBLINE_EMULATE_AVX512 is on
// (cmake/PlumblineLayer.cmake), before anything else. What an instruction does is taken from the Intel 64 and
// IA-32 Architectures Software Developer's Manual, volume 2. Far slower than AVX2: to test with, never to run
// with.
#pragma once

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors of 64 bytes are never passed between files
#include <immintrin.h>

#include <cstdint>
#include <cstring>

// A call each: inlined into unrolled tiles these loops take a compiler minutes.
#define PLUMBLINE_CALL static __attribute__((noinline, unused))

namespace plumbline::emulated {

template <typename T>
struct Lanes {
  T at[64 / sizeof(T)];
};
template <typename T, typename Vector>
static inline Lanes<T> From(const Vector& v) {
  static_assert(sizeof(v) <= sizeof(Lanes<T>));
  Lanes<T> lanes = {};
  std::memcpy(&lanes, &v, sizeof(v));
  return lanes;
}
template <typename Vector, typename T>
static inline Vector To(const Lanes<T>& lanes) {
  Vector v;
  std::memcpy(&v, &lanes, sizeof(v));
  return v;
}
template <typename T>
inline constexpr int kLanes = 64 / static_cast<int>(sizeof(T));

// result[i] = f(i) for each lane of type T.
template <typename T, typename Vector, typename F>
static inline Vector Each(F f) {
  Lanes<T> result;
  for (int i = 0; i < kLanes<T>; ++i) result.at[i] = static_cast<T>(f(i));
  return To<Vector>(result);
}

static inline __m256 LowPs(__m512 a) { return To<__m256>(From<float>(a)); }
static inline __m256 HighPs(__m512 a) {
  __m256 high;
  std::memcpy(&high, reinterpret_cast<const char*>(&a) + 32, 32);
  return high;
}
static inline __m512 JoinPs(__m256 low, __m256 high) {
  __m512 joined;
  std::memcpy(&joined, &low, 32);
  std::memcpy(reinterpret_cast<char*>(&joined) + 32, &high, 32);
  return joined;
}
// f of the two halves, for what AVX2 does the same way.
template <typename F, typename... Vectors>
PLUMBLINE_CALL __m512 Halves(F f, Vectors... v) {
  return JoinPs(f(LowPs(v)...), f(HighPs(v)...));
}

// Denormals are zeros to the bf16 instructions, whatever MXCSR says.
static inline float Flush(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  return (bits & 0x7f800000u) == 0 ? __builtin_bit_cast(float, bits & 0x80000000u) : x;
}
static inline uint16_t ToBf16(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, Flush(x));
  if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline float FromBf16(uint16_t x) {
  return Flush(__builtin_bit_cast(float, static_cast<uint32_t>(x) << 16));
}

static inline __m512 SetPs(float x) {
  return Each<float, __m512>([&](int) { return x; });
}
template <typename T>
static inline __m512i SetEpi(T x) {
  return Each<T, __m512i>([&](int) { return x; });
}
template <typename Vector>
static inline Vector LoadAll(const void* p) {
  Vector v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
template <typename Vector>
static inline void StoreAll(void* p, Vector v) {
  std::memcpy(p, &v, sizeof(v));
}
PLUMBLINE_CALL __m512 LoadMasked(__mmask16 m, const void* p) {
  const auto* from = static_cast<const float*>(p);
  return Each<float, __m512>([&](int i) { return (m >> i & 1) != 0 ? from[i] : 0.0F; });
}
PLUMBLINE_CALL void StoreMasked(void* p, __mmask16 m, __m512 v) {
  const Lanes<float> lanes = From<float>(v);
  for (int i = 0; i < 16; ++i) {
    if ((m >> i & 1) != 0) static_cast<float*>(p)[i] = lanes.at[i];
  }
}

// f(a, b) of each lane of two vectors, f(a) of one.
template <typename T, typename F>
PLUMBLINE_CALL __m512i Map(__m512i a, __m512i b, F f) {
  const Lanes<T> x = From<T>(a);
  const Lanes<T> y = From<T>(b);
  return Each<T, __m512i>([&](int i) { return f(x.at[i], y.at[i]); });
}
template <typename T, typename F>
PLUMBLINE_CALL __m512i Map(__m512i a, F f) {
  const Lanes<T> x = From<T>(a);
  return Each<T, __m512i>([&](int i) { return f(x.at[i]); });
}

template <typename Narrow>
PLUMBLINE_CALL __m512i Widen(const void* lanes) {
  return Each<int32_t, __m512i>([&](int i) {
    Narrow x;
    std::memcpy(&x, static_cast<const char*>(lanes) + i * static_cast<int>(sizeof(Narrow)), sizeof(x));
    return x;
  });
}
template <typename Narrow, typename Vector>
PLUMBLINE_CALL Vector Truncate(__m512i a) {
  const Lanes<uint32_t> x = From<uint32_t>(a);
  Lanes<Narrow> result = {};
  for (int i = 0; i < 16; ++i) result.at[i] = static_cast<Narrow>(x.at[i]);
  return To<Vector>(result);
}

template <typename T, typename Vector>
PLUMBLINE_CALL Vector Blend(__mmask16 m, Vector no, Vector yes) {
  const Lanes<T> a = From<T>(no);
  const Lanes<T> b = From<T>(yes);
  return Each<T, Vector>([&](int i) { return (m >> i & 1) != 0 ? b.at[i] : a.at[i]; });
}
template <int kOp>
PLUMBLINE_CALL __mmask16 ComparePs(__m512 a, __m512 b) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(LowPs(a), LowPs(b), kOp));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(HighPs(a), HighPs(b), kOp));
  return static_cast<__mmask16>(low | high << 8);
}
PLUMBLINE_CALL __mmask16 EqualEpi32(__m512i a, __m512i b) {
  const Lanes<int32_t> x = From<int32_t>(a);
  const Lanes<int32_t> y = From<int32_t>(b);
  unsigned m = 0;
  for (int i = 0; i < 16; ++i) m |= (x.at[i] == y.at[i] ? 1u : 0u) << i;
  return static_cast<__mmask16>(m);
}
PLUMBLINE_CALL __mmask64 SignsEpi8(__m512i a) {
  const Lanes<int8_t> x = From<int8_t>(a);
  uint64_t m = 0;
  for (int i = 0; i < 64; ++i) m |= (x.at[i] < 0 ? uint64_t{1} : 0) << i;
  return m;
}
PLUMBLINE_CALL __m512i SubMaskedEpi8(__m512i source, __mmask64 m, __m512i a, __m512i b) {
  const Lanes<uint8_t> s = From<uint8_t>(source);
  const Lanes<uint8_t> x = From<uint8_t>(a);
  const Lanes<uint8_t> y = From<uint8_t>(b);
  return Each<uint8_t, __m512i>([&](int i) { return (m >> i & 1) != 0 ? x.at[i] - y.at[i] : s.at[i]; });
}
template <int kTable>
PLUMBLINE_CALL __m512i Ternary(__m512i a, __m512i b, __m512i c) {
  const Lanes<uint64_t> x = From<uint64_t>(a);
  const Lanes<uint64_t> y = From<uint64_t>(b);
  const Lanes<uint64_t> z = From<uint64_t>(c);
  return Each<uint64_t, __m512i>([&](int i) {
    uint64_t result = 0;
    for (int bit = 0; bit < 64; ++bit) {
      const auto entry = (x.at[i] >> bit & 1) << 2 | (y.at[i] >> bit & 1) << 1 | (z.at[i] >> bit & 1);
      result |= (static_cast<uint64_t>(kTable) >> entry & 1) << bit;
    }
    return result;
  });
}

// Lane i of the result is lane which(i) of a (0..15) or b (16..31).
template <typename F>
PLUMBLINE_CALL __m512 Pick(__m512 a, __m512 b, F which) {
  const Lanes<float> x = From<float>(a);
  const Lanes<float> y = From<float>(b);
  return Each<float, __m512>([&](int i) {
    const int from = which(i);
    return from < 16 ? x.at[from] : y.at[from - 16];
  });
}
template <int kControl>
static inline __m512 PermutePs(__m512 a) {
  return Pick(a, a, [](int i) { return (i & ~3) + (kControl >> 2 * (i & 3) & 3); });
}
template <int kControl>
static inline __m512 ShuffleF32x4(__m512 a, __m512 b) {
  return Pick(a, b, [](int i) { return (kControl >> 2 * (i / 4) & 3) * 4 + i % 4 + (i < 8 ? 0 : 16); });
}

template <typename T, typename Vector, typename F>
PLUMBLINE_CALL T Reduce(Vector a, F f) {
  const Lanes<T> x = From<T>(a);
  T result = x.at[0];
  for (int i = 1; i < kLanes<T>; ++i) result = f(result, x.at[i]);
  return result;
}

PLUMBLINE_CALL __m512i MultiplyAddBytes(__m512i a, __m512i b) {
  const Lanes<uint8_t> x = From<uint8_t>(a);
  const Lanes<int8_t> y = From<int8_t>(b);
  return Each<int16_t, __m512i>([&](int i) {
    const int sum = x.at[2 * i] * y.at[2 * i] + x.at[2 * i + 1] * y.at[2 * i + 1];
    return sum > 32767 ? 32767 : sum < -32768 ? -32768 : sum;
  });
}
PLUMBLINE_CALL __m512i MultiplyAddWords(__m512i a, __m512i b) {
  const Lanes<int16_t> x = From<int16_t>(a);
  const Lanes<int16_t> y = From<int16_t>(b);
  return Each<uint32_t, __m512i>([&](int i) {
    return static_cast<uint32_t>(x.at[2 * i] * y.at[2 * i]) +
           static_cast<uint32_t>(x.at[2 * i + 1] * y.at[2 * i + 1]);
  });
}
PLUMBLINE_CALL __m512i DotBytes(__m512i sum, __m512i a, __m512i b) {
  const Lanes<uint32_t> s = From<uint32_t>(sum);
  const Lanes<uint8_t> x = From<uint8_t>(a);
  const Lanes<int8_t> y = From<int8_t>(b);
  return Each<uint32_t, __m512i>([&](int i) {
    uint32_t result = s.at[i];
    for (int j = 4 * i; j < 4 * i + 4; ++j) result += static_cast<uint32_t>(x.at[j] * y.at[j]);
    return result;
  });
}
PLUMBLINE_CALL __m512 DotBf16(__m512 sum, __m512bh a, __m512bh b) {
  const Lanes<float> s = From<float>(sum);
  const Lanes<uint16_t> x = From<uint16_t>(a);
  const Lanes<uint16_t> y = From<uint16_t>(b);
  return Each<float, __m512>([&](int i) {
    float result = Flush(s.at[i]);
    for (int j = 2 * i + 1; j >= 2 * i; --j) {
      result = Flush(__builtin_fmaf(FromBf16(x.at[j]), FromBf16(y.at[j]), result));
    }
    return result;
  });
}
PLUMBLINE_CALL __m256bh NarrowBf16(__m512 a) {
  const Lanes<float> x = From<float>(a);
  Lanes<uint16_t> result = {};
  for (int i = 0; i < 16; ++i) result.at[i] = ToBf16(x.at[i]);
  return To<__m256bh>(result);
}
PLUMBLINE_CALL __m512bh NarrowTwoBf16(__m512 high, __m512 low) {
  const Lanes<float> x = From<float>(low);
  const Lanes<float> y = From<float>(high);
  return Each<uint16_t, __m512bh>([&](int i) { return ToBf16(i < 16 ? x.at[i] : y.at[i - 16]); });
}

PLUMBLINE_CALL __m512i RoundEpi32(__m512 a) {
  Lanes<int32_t> result;
  const __m256i low = _mm256_cvtps_epi32(LowPs(a));
  const __m256i high = _mm256_cvtps_epi32(HighPs(a));
  std::memcpy(&result.at[0], &low, 32);
  std::memcpy(&result.at[8], &high, 32);
  return To<__m512i>(result);
}
template <int kRounding>
PLUMBLINE_CALL __m256i NarrowF16(__m512 a) {
  const __m128i low = _mm256_cvtps_ph(LowPs(a), kRounding);
  const __m128i high = _mm256_cvtps_ph(HighPs(a), kRounding);
  return _mm256_set_m128i(high, low);
}
template <typename... T>
static inline __m512 ListPs(T... x) {
  const float list[] = {x...};
  return LoadAll<__m512>(list);
}
template <typename... T>
static inline __m512i ListEpi32(T... x) {
  const int32_t list[] = {x...};
  return LoadAll<__m512i>(list);
}

}  // namespace plumbline::emulated

// NOLINTBEGIN(cppcoreguidelines-macro-usage): the names are the intrinsics'.
#define PLUMBLINE_EMU ::plumbline::emulated
#undef _mm512_setr_ps
#undef _mm512_setr_epi32
#define _mm512_setzero_ps() PLUMBLINE_EMU::SetPs(0)
#define _mm512_set1_ps(x) PLUMBLINE_EMU::SetPs(x)
#define _mm512_setr_ps(...) PLUMBLINE_EMU::ListPs(__VA_ARGS__)
#define _mm512_loadu_ps(p) PLUMBLINE_EMU::LoadAll<__m512>(p)
#define _mm512_storeu_ps(p, a) PLUMBLINE_EMU::StoreAll<__m512>(p, a)
#define _mm512_maskz_loadu_ps(m, p) PLUMBLINE_EMU::LoadMasked(m, p)
#define _mm512_mask_storeu_ps(p, m, a) PLUMBLINE_EMU::StoreMasked(p, m, a)
#define PLUMBLINE_HALVES(op, ...) PLUMBLINE_EMU::Halves([](auto... v) { return op(v...); }, __VA_ARGS__)
#define _mm512_add_ps(a, b) PLUMBLINE_HALVES(_mm256_add_ps, a, b)
#define _mm512_sub_ps(a, b) PLUMBLINE_HALVES(_mm256_sub_ps, a, b)
#define _mm512_mul_ps(a, b) PLUMBLINE_HALVES(_mm256_mul_ps, a, b)
#define _mm512_div_ps(a, b) PLUMBLINE_HALVES(_mm256_div_ps, a, b)
#define _mm512_fmadd_ps(a, b, c) PLUMBLINE_HALVES(_mm256_fmadd_ps, a, b, c)
#define _mm512_fnmadd_ps(a, b, c) PLUMBLINE_HALVES(_mm256_fnmadd_ps, a, b, c)
#define _mm512_sqrt_ps(a) PLUMBLINE_HALVES(_mm256_sqrt_ps, a)
#define _mm512_max_ps(a, b) PLUMBLINE_HALVES(_mm256_max_ps, a, b)
#define _mm512_min_ps(a, b) PLUMBLINE_HALVES(_mm256_min_ps, a, b)
#define _mm512_roundscale_ps(a, mode) \
  PLUMBLINE_EMU::Halves([](__m256 v) { return _mm256_round_ps(v, mode); }, a)
#define _mm512_cmp_ps_mask(a, b, op) PLUMBLINE_EMU::ComparePs<op>(a, b)
#define _mm512_mask_blend_ps(m, a, b) PLUMBLINE_EMU::Blend<float>(m, a, b)
#define _mm512_permute_ps(a, control) PLUMBLINE_EMU::PermutePs<control>(a)
#define _mm512_shuffle_f32x4(a, b, control) PLUMBLINE_EMU::ShuffleF32x4<control>(a, b)
#define _mm512_moveldup_ps(a) PLUMBLINE_EMU::PermutePs<0xa0>(a)
#define _mm512_movehdup_ps(a) PLUMBLINE_EMU::PermutePs<0xf5>(a)
#define _mm512_permutexvar_ps(index, a) \
  _mm512_permutex2var_ps(a, _mm512_and_si512(index, _mm512_set1_epi32(15)), a)
#define _mm512_permutex2var_ps(a, index, b) \
  PLUMBLINE_EMU::Pick(a, b, [lanes = PLUMBLINE_EMU::From<int32_t>(index)](int i) { return lanes.at[i] & 31; })
#define _mm512_reduce_max_ps(a) \
  PLUMBLINE_EMU::Reduce<float>(a, [](float x, float y) { return x > y ? x : y; })
#define _mm512_reduce_max_epi32(a) \
  PLUMBLINE_EMU::Reduce<int32_t>(a, [](int32_t x, int32_t y) { return x > y ? x : y; })
#define _mm512_cvtss_f32(a) PLUMBLINE_EMU::From<float>(a).at[0]
#define _mm512_castsi512_ps(a) __builtin_bit_cast(__m512, a)
#define _mm512_castps_si512(a) __builtin_bit_cast(__m512i, a)
#define _mm512_castsi512_si256(a) PLUMBLINE_EMU::To<__m256i>(PLUMBLINE_EMU::From<int64_t>(a))
#define _mm512_extracti64x4_epi64(a, half)                                         \
  __builtin_bit_cast(__m256i, half ? PLUMBLINE_EMU::HighPs(_mm512_castsi512_ps(a)) \
                                   : PLUMBLINE_EMU::LowPs(_mm512_castsi512_ps(a)))

#define _mm512_setzero_si512() PLUMBLINE_EMU::SetEpi<int32_t>(0)
#define _mm512_set1_epi16(x) PLUMBLINE_EMU::SetEpi<int16_t>(x)
#define _mm512_set1_epi32(x) PLUMBLINE_EMU::SetEpi<int32_t>(x)
#define _mm512_setr_epi32(...) PLUMBLINE_EMU::ListEpi32(__VA_ARGS__)
#define _mm512_loadu_si512(p) PLUMBLINE_EMU::LoadAll<__m512i>(p)
#define _mm512_storeu_si512(p, a) PLUMBLINE_EMU::StoreAll<__m512i>(p, a)
#define PLUMBLINE_MAP2(T, a, b, expression) PLUMBLINE_EMU::Map<T>(a, b, [](T x, T y) { return expression; })
#define PLUMBLINE_MAP1(T, a, expression) PLUMBLINE_EMU::Map<T>(a, [](T x) { return expression; })
#define _mm512_add_epi16(a, b) PLUMBLINE_MAP2(uint16_t, a, b, x + y)
#define _mm512_add_epi32(a, b) PLUMBLINE_MAP2(uint32_t, a, b, x + y)
#define _mm512_sub_epi32(a, b) PLUMBLINE_MAP2(uint32_t, a, b, x - y)
#define _mm512_and_si512(a, b) PLUMBLINE_MAP2(uint64_t, a, b, x& y)
#define _mm512_or_si512(a, b) PLUMBLINE_MAP2(uint64_t, a, b, x | y)
#define _mm512_xor_si512(a, b) PLUMBLINE_MAP2(uint64_t, a, b, x ^ y)
#define _mm512_mul_epu32(a, b) PLUMBLINE_MAP2(uint64_t, a, b, (x & 0xffffffffu) * (y & 0xffffffffu))
#define _mm512_slli_epi32(a, n) PLUMBLINE_MAP1(uint32_t, a, x << (n))
#define _mm512_srli_epi32(a, n) PLUMBLINE_MAP1(uint32_t, a, x >> (n))
#define _mm512_srai_epi32(a, n) PLUMBLINE_MAP1(int32_t, a, x >> (n))
#define _mm512_slli_epi64(a, n) PLUMBLINE_MAP1(uint64_t, a, x << (n))
#define _mm512_srli_epi64(a, n) PLUMBLINE_MAP1(uint64_t, a, x >> (n))
#define _mm512_abs_epi8(a) PLUMBLINE_MAP1(int8_t, a, x < 0 ? -x : x)
#define _mm512_ternarylogic_epi32(a, b, c, table) PLUMBLINE_EMU::Ternary<table>(a, b, c)
#define _mm512_cmpeq_epi32_mask(a, b) PLUMBLINE_EMU::EqualEpi32(a, b)
#define _mm512_mask_blend_epi32(m, a, b) PLUMBLINE_EMU::Blend<int32_t>(m, a, b)
#define _mm512_movepi8_mask(a) PLUMBLINE_EMU::SignsEpi8(a)
#define _mm512_mask_sub_epi8(source, m, a, b) PLUMBLINE_EMU::SubMaskedEpi8(source, m, a, b)
#define _mm512_maddubs_epi16(a, b) PLUMBLINE_EMU::MultiplyAddBytes(a, b)
#define _mm512_madd_epi16(a, b) PLUMBLINE_EMU::MultiplyAddWords(a, b)
#define _mm512_dpbusd_epi32(sum, a, b) PLUMBLINE_EMU::DotBytes(sum, a, b)
#define _mm512_dpbf16_ps(sum, a, b) PLUMBLINE_EMU::DotBf16(sum, a, b)
#undef _mm256_rol_epi32
#define _mm256_rol_epi32(a, n) _mm256_or_si256(_mm256_slli_epi32(a, n), _mm256_srli_epi32(a, 32 - (n)))
#define _mm512_cvtneps_pbh(a) PLUMBLINE_EMU::NarrowBf16(a)
#define _mm512_cvtne2ps_pbh(a, b) PLUMBLINE_EMU::NarrowTwoBf16(a, b)
#define _mm512_cvtps_epi32(a) PLUMBLINE_EMU::RoundEpi32(a)
#define _mm512_cvtps_ph(a, rounding) PLUMBLINE_EMU::NarrowF16<rounding>(a)
#define _mm512_cvtph_ps(a)                                                              \
  [](const __m256i& halves) {                                                           \
    return PLUMBLINE_EMU::JoinPs(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),       \
                                 _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))); \
  }(a)
#define _mm512_cvtepi32_ps(a)                                                      \
  [](const __m512i& words) {                                                       \
    const auto lanes = PLUMBLINE_EMU::From<int32_t>(words);                        \
    return PLUMBLINE_EMU::Each<float, __m512>([&](int i) { return lanes.at[i]; }); \
  }(a)
#define PLUMBLINE_WIDEN(Narrow, a) [](const auto& lanes) { return PLUMBLINE_EMU::Widen<Narrow>(&lanes); }(a)
#define _mm512_cvtepu8_epi32(a) PLUMBLINE_WIDEN(uint8_t, a)
#define _mm512_cvtepi8_epi32(a) PLUMBLINE_WIDEN(int8_t, a)
#define _mm512_cvtepu16_epi32(a) PLUMBLINE_WIDEN(uint16_t, a)
#define _mm512_cvtepi32_epi8(a) PLUMBLINE_EMU::Truncate<uint8_t, __m128i>(a)
#define _mm512_cvtepi32_epi16(a) PLUMBLINE_EMU::Truncate<uint16_t, __m256i>(a)

// The kernels' only assembly pins a value in a vector register, which no emulated one is in.
#define __asm__(...)

#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1
#if PLUMBLINE_EMULATED_BF16
#define __AVX512BF16__ 1
#define __AVX512VNNI__ 1
#endif
// NOLINTEND(cppcoreguidelines-macro-usage)
