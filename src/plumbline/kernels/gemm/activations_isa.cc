// Activations rounded to the compute type and interleaved by rows: step s of row r at [s][rows] + r. Of
// integers (kQuadWords words a group of 32 k), word w of group g of row r lies at [g][rows][kQuadWords] + (r,
// w).
#include "plumbline/kernels/gemm/gemm_tile.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

// Sixteen consecutive k of a row -> eight pairs, even k high, in lanes 0..7.
PLUMBLINE_INLINE void StorePairs(F32x16 x, uint32_t* out) {
  alignas(64) uint32_t bits[16];
  StoreI(bits, Bf16Bits(x));
  PLUMBLINE_UNROLL
  for (int i = 0; i < 8; ++i) out[i] = bits[2 * i] << 16 | bits[2 * i + 1];
}

struct Pairs {
  static constexpr int kSteps = 8;  // a vector of 16 k
  PLUMBLINE_INLINE void Convert(F32x16 x, uint32_t* out) {
#if defined(__AVX512BF16__)
    const auto pairs = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_rol_epi32(pairs, 16));
#else
    StorePairs(x, out);
#endif
  }
};

struct Rounded {
  static constexpr int kSteps = 16;
  PLUMBLINE_INLINE void Convert(F32x16 x, uint32_t* out) { StoreI(out, ShiftLeft<16>(Bf16Bits(x))); }
};

struct Floats {
  static constexpr int kSteps = 16;
  PLUMBLINE_INLINE void Convert(F32x16 x, uint32_t* out) { StoreI(out, AsI32(x)); }
};

// [rows][16] words -> the first `count` of all rows, [count][rows], count in fours: four rows by four words
// at a time, since a store of each word would take longer than all else here.
PLUMBLINE_INLINE void Interleave(const uint32_t (*words)[16], int64_t rows, int64_t count, uint32_t* out) {
  int64_t r = 0;
  const auto load = [&](int64_t row, int64_t w) {
    return _mm_load_ps(reinterpret_cast<const float*>(words[row] + w));
  };
  const auto at = [&](int64_t w) { return reinterpret_cast<float*>(out + w * rows + r); };
  for (; r + 4 <= rows; r += 4) {
    for (int64_t w = 0; w < count; w += 4) {
      __m128 a = load(r, w), b = load(r + 1, w), c = load(r + 2, w), d = load(r + 3, w);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      _mm_storeu_ps(at(w), a);
      _mm_storeu_ps(at(w + 1), b);
      _mm_storeu_ps(at(w + 2), c);
      _mm_storeu_ps(at(w + 3), d);
    }
  }
  for (; r + 2 <= rows; r += 2) {
    for (int64_t w = 0; w < count; w += 4) {
      const __m128 a = load(r, w), b = load(r + 1, w);
      const __m128 low = _mm_unpacklo_ps(a, b), high = _mm_unpackhi_ps(a, b);
      _mm_storel_pi(reinterpret_cast<__m64*>(at(w)), low);
      _mm_storeh_pi(reinterpret_cast<__m64*>(at(w + 1)), low);
      _mm_storel_pi(reinterpret_cast<__m64*>(at(w + 2)), high);
      _mm_storeh_pi(reinterpret_cast<__m64*>(at(w + 3)), high);
    }
  }
  if (r < rows) {
    for (int64_t w = 0; w < count; ++w) out[w * rows + r] = words[r][w];
  }
}

template <typename Kind>
void PackRows(const float* x, int64_t stride, int64_t rows, int64_t k, uint32_t* out) {
  const int64_t steps = Kind::kSteps * ((k + 1) / 2 * 2) / 16;  // k rounded up to even
  alignas(64) uint32_t words[kMaxTileRows][16];
  for (int64_t begin = 0, step = 0; begin < k; begin += 16, step += Kind::kSteps) {
    const int64_t left = k - begin;
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = x + r * stride + begin;
      Kind::Convert(left < 16 ? LoadN(from, static_cast<int>(left)) : Load(from), words[r]);
    }
    const int64_t count = steps - step;
    if (count >= Kind::kSteps) {
      Interleave(words, rows, Kind::kSteps, out + step * rows);
      continue;
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < count; ++i) out[(step + i) * rows + r] = words[r][i];
    }
  }
}

// The lowest byte of each lane, and the largest lane.
#if defined(__AVX512F__)
PLUMBLINE_INLINE __m128i NarrowI8(I32x16 a) { return _mm512_cvtepi32_epi8(a.v); }
PLUMBLINE_INLINE int32_t MaxLaneI(I32x16 a) { return _mm512_reduce_max_epi32(a.v); }
#else
PLUMBLINE_INLINE __m128i NarrowI8(I32x16 a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
  return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
PLUMBLINE_INLINE int32_t MaxLaneI(I32x16 a) {
  const __m256i eight = _mm256_max_epi32(a.lo, a.hi);
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtsi128_si32(m);
}
#endif

// The sum of sixteen int8.
PLUMBLINE_INLINE int32_t SumBytes(__m128i bytes) {
  const __m128i unsigned_bytes = _mm_xor_si128(bytes, _mm_set1_epi8(-128));
  const __m128i sums = _mm_sad_epu8(unsigned_bytes, _mm_setzero_si128());
  return _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4e))) - 16 * 128;
}

// Integers of 32 activations (numerics contract, section 3): x / scale, the scale their largest magnitude /
// 127.
PLUMBLINE_INLINE void QuantizeGroup(const float* x, uint32_t* words) {
  const I32x16 magnitudes = SetI(0x7fffffff);
  const F32x16 value[2] = {Load(x), Load(x + 16)};
  // As integers the magnitudes are in order, NaN above all.
  const int32_t bits[2] = {MaxLaneI(AsI32(value[0]) & magnitudes), MaxLaneI(AsI32(value[1]) & magnitudes)};
  const int32_t largest_bits = bits[0] > bits[1] ? bits[0] : bits[1];
  const float largest = __builtin_bit_cast(float, largest_bits);
  float scale = 0.0f;
  int32_t sum[2] = {};
  if (largest_bits >= 0x7f800000) {
    scale = largest;  // an infinity or a NaN makes every product a NaN
    for (int i = 0; i < 8; ++i) words[i] = 0;
  } else if (largest < 0x1p-100f) {
    for (int i = 0; i < 8; ++i) words[i] = 0;
  } else {
    scale = largest / 127.0f;
    const F32x16 inverse = Set(127.0f / largest);
    for (int i = 0; i < 2; ++i) {
      const __m128i codes = NarrowI8(RoundToI32(value[i] * inverse));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(words + 4 * i), codes);
      sum[i] = SumBytes(codes);
    }
  }
  words[8] = __builtin_bit_cast(uint32_t, scale);
  words[9] = __builtin_bit_cast(uint32_t, scale * static_cast<float>(sum[0] + sum[1]));
  words[10] = static_cast<uint32_t>(sum[0]);
  words[11] = static_cast<uint32_t>(sum[1]);
}

// k is a multiple of 32.
void PackQuads(const float* x, int64_t stride, int64_t rows, int64_t k, uint32_t* out) {
  for (int64_t begin = 0; begin < k; begin += 32) {
    for (int64_t r = 0; r < rows; ++r, out += kQuadWords) QuantizeGroup(x + r * stride + begin, out);
  }
}

}  // namespace

constexpr ActivationKernels kActivations = {PackRows<Pairs>, PackRows<Rounded>, PackRows<Floats>, PackQuads};

}  // namespace plumbline::PLUMBLINE_ISA
