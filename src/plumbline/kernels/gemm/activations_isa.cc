// Activations rounded to the compute type and interleaved by rows: step s of row r at [s][rows] + r.
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

template <typename Kind>
void PackRows(const float* x, int64_t stride, int64_t rows, int64_t k, uint32_t* out) {
  const int64_t steps = Kind::kSteps * ((k + 1) / 2 * 2) / 16;  // k rounded up to even
  // Rows innermost: what is written lies close together.
  for (int64_t begin = 0, step = 0; begin < k; begin += 16, step += Kind::kSteps) {
    const int64_t left = k - begin;
    const int64_t count = steps - step < Kind::kSteps ? steps - step : Kind::kSteps;
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = x + r * stride + begin;
      alignas(64) uint32_t words[16];
      Kind::Convert(left < 16 ? LoadN(from, static_cast<int>(left)) : Load(from), words);
      uint32_t* to = out + step * rows + r;
      if (count == Kind::kSteps) {
        PLUMBLINE_UNROLL
        for (int64_t i = 0; i < Kind::kSteps; ++i) to[i * rows] = words[i];
      } else {
        for (int64_t i = 0; i < count; ++i) to[i * rows] = words[i];
      }
    }
  }
}

}  // namespace

constexpr ActivationKernels kActivations = {PackRows<Pairs>, PackRows<Rounded>, PackRows<Floats>};

}  // namespace plumbline::PLUMBLINE_ISA
