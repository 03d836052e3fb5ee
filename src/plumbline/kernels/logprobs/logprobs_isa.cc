#include "plumbline/kernels/logprobs/logprobs_kernels.h"
#include "plumbline/kernels/simd/vec16.h"
#include "plumbline/kernels/simd/vmath.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

constexpr float kNegativeInfinity = -__builtin_inff();

// Maximum over 16 lanes that hold no NaN, by halves: in a chain of comparisons each would be a branch that
// fails to be predicted.
float MaxOfLanes(F32x16 a) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(a.v);
#else
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
#endif
}

// NaN is collected beside the maximum, because maxps drops it; four chains hide the latency of the maximum.
float TileMax(const float* x, int64_t n) {
  const F32x16 lowest = Set(kNegativeInfinity);
  F32x16 m0 = lowest, m1 = lowest, m2 = lowest, m3 = lowest;
  Mask16 nan = IsNan(lowest);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const F32x16 x0 = Load(x + i), x1 = Load(x + i + 16), x2 = Load(x + i + 32), x3 = Load(x + i + 48);
    m0 = MaxPs(x0, m0);
    m1 = MaxPs(x1, m1);
    m2 = MaxPs(x2, m2);
    m3 = MaxPs(x3, m3);
    nan = nan | IsNan(x0) | IsNan(x1) | IsNan(x2) | IsNan(x3);
  }
  for (; i < n; i += 16) {
    const int count = n - i < 16 ? static_cast<int>(n - i) : 16;
    const F32x16 tail = Select(FirstN(count), LoadN(x + i, count), lowest);
    m0 = MaxPs(tail, m0);
    nan = nan | IsNan(tail);
  }
  if (Bits(nan) != 0) return __builtin_nanf("");
  return MaxOfLanes(MaxPs(MaxPs(m0, m1), MaxPs(m2, m3)));
}

void TileStats(const float* x, int64_t n, float* max, float* sum) {
  const float m = TileMax(x, n);
  *max = m;
  *sum = 0.0f;
  if (m == kNegativeInfinity) return;
  const F32x16 shift = Set(m);
  F32x16 lanes = Zero();
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const F32x16 e0 = Exp(Load(x + i) - shift);
    const F32x16 e1 = Exp(Load(x + i + 16) - shift);
    const F32x16 e2 = Exp(Load(x + i + 32) - shift);
    const F32x16 e3 = Exp(Load(x + i + 48) - shift);
    lanes = lanes + e0;
    lanes = lanes + e1;
    lanes = lanes + e2;
    lanes = lanes + e3;
  }
  for (; i + 16 <= n; i += 16) lanes = lanes + Exp(Load(x + i) - shift);
  if (i < n) {
    const int count = static_cast<int>(n - i);
    lanes = lanes + Select(FirstN(count), Exp(LoadN(x + i, count) - shift), Zero());
  }
  *sum = TreeSum(lanes);
}

struct Stats {
  F32x16 m, s;
};

// Row by row. A side whose maximum is -inf is the identity: its sum is 0, so only where both are does the
// formula (which would say exp(-inf + inf)) not already say so.
Stats Merge(Stats a, Stats b) {
  const F32x16 m = MaxNan(a.m, b.m);
  const F32x16 s = Fma(b.s, Exp(b.m - m), a.s * Exp(a.m - m));
  return {m, Select(a.m == Set(kNegativeInfinity), b.s, s)};
}

// Sixteen rows at a time; the tree is a binary counter of finished nodes, the larger to the left.
void Norms(const float* tile_max, const float* tile_sum, int64_t tiles, int64_t rows, float* norm) {
  Stats node[64];
  for (int64_t row = 0; row < rows; row += 16) {
    const int count = rows - row < 16 ? static_cast<int>(rows - row) : 16;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t at = tile * rows + row;
      Stats carry = {LoadN(tile_max + at, count), LoadN(tile_sum + at, count)};
      int level = 0;
      for (; (tile >> level) & 1; ++level) carry = Merge(node[level], carry);
      node[level] = carry;
    }
    int level = __builtin_ctzll(static_cast<uint64_t>(tiles));
    Stats total = node[level];
    while (++level < 63) {
      if ((tiles >> level) & 1) total = Merge(node[level], total);
    }
    const I32x16 negated = AsI32(total.m + Log(total.s)) ^ SetI(static_cast<int32_t>(0x80000000u));
    StoreN(norm + row, AsF32(negated), count);
  }
}

int64_t CountBefore(const float* x, int64_t n, float chosen, int64_t below) {
  const F32x16 bar = Set(chosen);
  int64_t total = 0;
  int64_t i = 0;
  for (; i + 16 <= below; i += 16) {
    const F32x16 v = Load(x + i);
    total += __builtin_popcount(Bits((v > bar) | (v == bar)));
  }
  for (; i < n && i < below; i += 16) {
    const int count = n - i < 16 ? static_cast<int>(n - i) : 16;
    const F32x16 v = LoadN(x + i, count);
    const Mask16 equal = (v == bar) & FirstN(static_cast<int>(below - i));
    total += __builtin_popcount(Bits(((v > bar) & FirstN(count)) | equal));
  }
  for (; i + 16 <= n; i += 16) total += __builtin_popcount(Bits(Load(x + i) > bar));
  if (i < n) {
    const int count = static_cast<int>(n - i);
    total += __builtin_popcount(Bits((LoadN(x + i, count) > bar) & FirstN(count)));
  }
  return total;
}

// A number that at least k of x [n] reach: the k-th largest of the maxima of 16 or 64 interleaved lanes.
// Without it most of a row's first tile would enter an empty heap only to leave it again.
float Floor(const float* x, int64_t n, int64_t k) {
  if (n < 256 || k > 32) return kNegativeInfinity;
  const F32x16 lowest = Set(kNegativeInfinity);
  F32x16 m[4] = {lowest, lowest, lowest, lowest};
  for (int64_t i = 0; i + 64 <= n; i += 64) {
    for (int j = 0; j < 4; ++j) m[j] = MaxPs(Load(x + i + 16 * j), m[j]);
  }
  if (k <= 8) m[0] = MaxPs(MaxPs(m[0], m[1]), MaxPs(m[2], m[3]));
  const int vectors = k <= 8 ? 1 : 4;
  alignas(64) float lane[64];
  for (int j = 0; j < vectors; ++j) Store(lane + 16 * j, m[j]);
  float floor = kNegativeInfinity;
  for (int i = 0; i < 16 * vectors; ++i) {
    if (!(lane[i] > floor)) continue;
    int below = 0;
    for (int j = 0; j < vectors; ++j) below += __builtin_popcount(Bits(m[j] < Set(lane[i])));
    if (16 * vectors - below >= k) floor = lane[i];
  }
  return floor;
}

void OfferHits(uint64_t hits, const float* x, int32_t first_id, TopEntry* heap, int64_t k) {
  for (; hits != 0; hits &= hits - 1) {
    const int lane = __builtin_ctzll(hits);
    const TopEntry entry = {x[lane], first_id + lane};
    if (RanksBefore(entry, heap[0])) ReplaceWorst(heap, k, entry);
  }
}

uint64_t Reaching(F32x16 v, F32x16 bar) { return Bits((v > bar) | (v == bar)); }

// Only lanes that may beat the current worst are looked at one by one. Ids ascend, so a value equal to the
// worst's can enter only while the worst has a later id.
void Offer(const float* x, int64_t n, int32_t first_id, TopEntry* heap, int64_t k) {
  const float floor = heap[0].value == kNegativeInfinity ? Floor(x, n, k) : kNegativeInfinity;
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const int32_t id = first_id + static_cast<int32_t>(i);
    const bool below_floor = heap[0].value < floor;
    const F32x16 bar = Set(below_floor ? floor : heap[0].value);
    const F32x16 v0 = Load(x + i), v1 = Load(x + i + 16), v2 = Load(x + i + 32), v3 = Load(x + i + 48);
    uint64_t hits;
    if (below_floor || heap[0].id > id) {
      hits = Reaching(v0, bar) | Reaching(v1, bar) << 16 | Reaching(v2, bar) << 32 | Reaching(v3, bar) << 48;
    } else if (Bits((v0 > bar) | (v1 > bar) | (v2 > bar) | (v3 > bar)) == 0) {
      continue;
    } else {
      hits = Bits(v0 > bar) | uint64_t{Bits(v1 > bar)} << 16 | uint64_t{Bits(v2 > bar)} << 32 |
             uint64_t{Bits(v3 > bar)} << 48;
    }
    OfferHits(hits, x + i, id, heap, k);
  }
  for (; i < n; i += 16) {
    const int count = n - i < 16 ? static_cast<int>(n - i) : 16;
    const F32x16 v = LoadN(x + i, count);
    const uint64_t hits = Reaching(v, Set(heap[0].value)) & Bits(FirstN(count));
    OfferHits(hits, x + i, first_id + static_cast<int32_t>(i), heap, k);
  }
}

}  // namespace

const LogProbKernels kLogProbKernels = {TileStats, Norms, CountBefore, Offer};

}  // namespace plumbline::PLUMBLINE_ISA
