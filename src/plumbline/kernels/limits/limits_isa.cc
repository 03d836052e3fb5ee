#include "plumbline/kernels/limits/limits_kernels.h"
#include "plumbline/kernels/simd/vec16.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

// Some machines read twice as fast where they are told what comes next; none reads slower.
constexpr int64_t kAhead = 4096;

uint32_t Read(const char* data, int64_t bytes) {
  I32x16 sums[4] = {SetI(0), SetI(0), SetI(0), SetI(0)};
  const int64_t quarter = bytes / 4;
  for (int64_t i = 0; i < quarter; i += 64) {
    for (int s = 0; s < 4; ++s) {
      _mm_prefetch(data + s * quarter + i + kAhead, _MM_HINT_T0);
      sums[s] = sums[s] + LoadI(data + s * quarter + i);
    }
  }
  uint32_t lanes[16];
  StoreI(lanes, (sums[0] + sums[1]) + (sums[2] + sums[3]));
  uint32_t sum = 0;
  for (const uint32_t lane : lanes) sum += lane;
  return sum;
}

// Chain i begins at i: equal chains would be computed once.
constexpr int kChains = 12;

// The lanes of all chains, so that no chain is left out.
float Total(const F32x16* chains) {
  F32x16 sum = Zero();
  for (int i = 0; i < kChains; ++i) sum = sum + chains[i];
  float lanes[16];
  Store(lanes, sum);
  float total = 0;
  for (const float lane : lanes) total += lane;
  return total;
}

#if defined(__AVX512F__)

// Twelve chains of one register each: latency 4, two a cycle, need eight.
float MultiplyAdd(int64_t steps) {
  F32x16 chains[kChains];
  for (int i = 0; i < kChains; ++i) chains[i] = Set(static_cast<float>(i));
  const F32x16 half = Set(0.5f);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chains[i] = Fma(half, half, chains[i]);
  }
  return Total(chains);
}

#else

// A chain of sixteen lanes is two registers here, and twelve chains would not fit into sixteen: two passes of
// six, the same operations.
float MultiplyAdd(int64_t steps) {
  F32x16 chains[kChains];
  for (int i = 0; i < kChains; ++i) chains[i] = Set(static_cast<float>(i));
  const F32x16 half = Set(0.5f);
  for (int pass = 0; pass < kChains; pass += 6) {
    F32x16 six[6];
    for (int i = 0; i < 6; ++i) six[i] = chains[pass + i];
    for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 6
      for (int i = 0; i < 6; ++i) six[i] = Fma(half, half, six[i]);
    }
    for (int i = 0; i < 6; ++i) chains[pass + i] = six[i];
  }
  return Total(chains);
}

#endif

#if defined(__AVX512BF16__)

float DotBf16(int64_t steps) {
  F32x16 chains[kChains];
  for (int i = 0; i < kChains; ++i) chains[i] = Set(static_cast<float>(i));
  const auto halves = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f003f00));  // pairs of 0.5
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chains[i].v = _mm512_dpbf16_ps(chains[i].v, halves, halves);
  }
  return Total(chains);
}
constexpr auto kDotBf16 = DotBf16;

#else

constexpr float (*kDotBf16)(int64_t) = nullptr;

#endif

}  // namespace

const LimitsKernels kLimitsKernels = {Read, MultiplyAdd, kDotBf16};

}  // namespace plumbline::PLUMBLINE_ISA
