// Tiles over weights that need no decoding. Lanes run over columns, so each accumulator is the chain of one
// output; rows x vectors accumulators stay in registers for a whole leaf.
#include "plumbline/kernels/gemm/gemm_tile.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kAccumulators = 24;  // of 32 registers
#else
constexpr int kAccumulators = 6;  // two of 16 registers each
#endif

PLUMBLINE_INLINE F32x16 BroadcastFloat(const uint32_t* x) { return Set(__builtin_bit_cast(float, *x)); }
PLUMBLINE_INLINE I32x16 BroadcastWord(const uint32_t* x) { return SetI(static_cast<int32_t>(*x)); }

// Vector v of row `row` ([row][32] words) of the panels.
template <int kVectors>
PLUMBLINE_INLINE const float* WeightAt(const TileArgs& args, int64_t row, int v) {
  const char* panel = static_cast<const char*>(args.w) + (v / 2) * args.panel_stride;
  return reinterpret_cast<const float*>(panel) + row * kPanel + (v % 2) * 16;
}

// A tile stays ahead of itself; for all but the first of a panel, and for a panel in scratch, what it asks
// for is in the second-level cache.
template <int kVectors>
PLUMBLINE_INLINE void PrefetchRow(const TileArgs& args, int64_t row) {
  PLUMBLINE_UNROLL
  for (int v = 0; v < kVectors; ++v) PrefetchLines<1>(WeightAt<kVectors>(args, row, v));
}

// Tiles that share a panel ask for the next one together: a first tile that fetched all of it would wait for
// memory, which the others would leave idle.
class NextPanel {
 public:
  __attribute__((always_inline)) NextPanel(const TileArgs& args, int64_t step)
      : every_(args.ahead == nullptr ? INT64_MAX : args.ahead_every),
        left_(every_ - step % every_),
        at_(static_cast<const char*>(args.ahead) + step / every_ * kAheadBytes) {}

  __attribute__((always_inline)) void Step() {
    if (--left_ != 0) return;
    left_ = every_;
    PLUMBLINE_UNROLL
    for (int64_t i = 0; i < kAheadBytes; i += 64) _mm_prefetch(at_ + i, _MM_HINT_T1);
    at_ += kAheadBytes;
  }

 private:
  const int64_t every_;
  int64_t left_;
  const char* at_;
};

struct Pairs {
  template <int kRows, int kVectors>
  PLUMBLINE_INLINE void Chain(F32x16 (&acc)[kRows][kVectors], const TileArgs& args, int64_t begin,
                              int64_t end) {
    const uint32_t* x = static_cast<const uint32_t*>(args.x) + begin / 2 * args.x_stride;
    NextPanel next(args, begin / 2);
    for (int64_t p = begin / 2; p < end / 2; ++p, x += args.x_stride) {
      PrefetchRow<kVectors>(args, p);
      next.Step();
      I32x16 w[kVectors];
      PLUMBLINE_UNROLL
      for (int v = 0; v < kVectors; ++v) w[v] = LoadI(WeightAt<kVectors>(args, p, v));
      PLUMBLINE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const I32x16 xr = BroadcastWord(x + r);
        PLUMBLINE_UNROLL
        for (int v = 0; v < kVectors; ++v) acc[r][v] = DotPairs(acc[r][v], w[v], xr);
      }
    }
  }
};

template <int kRows, int kVectors>
PLUMBLINE_INLINE void FmaStep(F32x16 (&acc)[kRows][kVectors], const F32x16 (&w)[kVectors],
                              const uint32_t* x) {
  PLUMBLINE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const F32x16 xr = BroadcastFloat(x + r);
    PLUMBLINE_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[r][v] = Fma(w[v], xr, acc[r][v]);
  }
}

struct Floats {
  template <int kRows, int kVectors>
  PLUMBLINE_INLINE void Chain(F32x16 (&acc)[kRows][kVectors], const TileArgs& args, int64_t begin,
                              int64_t end) {
    const uint32_t* x = static_cast<const uint32_t*>(args.x) + begin * args.x_stride;
    for (int64_t k = begin; k < end; ++k, x += args.x_stride) {
      PrefetchRow<kVectors>(args, k);
      F32x16 w[kVectors];
      PLUMBLINE_UNROLL
      for (int v = 0; v < kVectors; ++v) w[v] = Load(WeightAt<kVectors>(args, k, v));
      FmaStep<kRows, kVectors>(acc, w, x);
    }
  }
};

struct Widened {
  template <int kRows, int kVectors>
  PLUMBLINE_INLINE void Chain(F32x16 (&acc)[kRows][kVectors], const TileArgs& args, int64_t begin,
                              int64_t end) {
    const uint32_t* x = static_cast<const uint32_t*>(args.x) + begin * args.x_stride;
    NextPanel next(args, begin / 2);
    for (int64_t p = begin / 2; p < end / 2; ++p, x += 2 * args.x_stride) {
      PrefetchRow<kVectors>(args, p);
      next.Step();
      F32x16 w[kVectors];
      PLUMBLINE_UNROLL
      for (int v = 0; v < kVectors; ++v) w[v] = PairHigh(LoadI(WeightAt<kVectors>(args, p, v)));
      FmaStep<kRows, kVectors>(acc, w, x);
      PLUMBLINE_UNROLL
      for (int v = 0; v < kVectors; ++v) w[v] = PairLow(LoadI(WeightAt<kVectors>(args, p, v)));
      FmaStep<kRows, kVectors>(acc, w, x + args.x_stride);
    }
  }
};

template <typename Kind, int kRows, int kVectors>
void Tile(const TileArgs& args) {
  RunLeaves<kRows, kVectors>(
      args, [&](F32x16(&acc)[kRows][kVectors], int64_t begin, int64_t end) __attribute__((always_inline)) {
        Kind::template Chain<kRows, kVectors>(acc, args, begin, end);
      });
}

// Half a panel (1), one (2), two (4), three (6) or four (8).
template <typename Kind, int kRows, int kVectors>
constexpr TileFn TileOrNull() {
  if constexpr (kRows * kVectors <= kAccumulators && (kVectors == 1 || kVectors % 2 == 0)) {
    return Tile<Kind, kRows, kVectors>;
  } else {
    return nullptr;
  }
}

template <typename Kind, int kRows>
constexpr void FillRow(TileFn (&row)[kMaxTileVectors + 1]) {
  row[1] = TileOrNull<Kind, kRows, 1>();
  row[2] = TileOrNull<Kind, kRows, 2>();
  row[4] = TileOrNull<Kind, kRows, 4>();
  row[6] = TileOrNull<Kind, kRows, 6>();
  row[8] = TileOrNull<Kind, kRows, 8>();
}

template <typename Kind, int kRows>
constexpr void FillRows(TileFn (&rows)[kMaxTileRows][kMaxTileVectors + 1]) {
  FillRow<Kind, kRows>(rows[kRows - 1]);
  if constexpr (kRows > 1) FillRows<Kind, kRows - 1>(rows);
}

constexpr TileKernels MakeKernels() {
  TileKernels kernels = {};
#if defined(__AVX512BF16__)
  FillRows<Pairs, kMaxTileRows>(kernels.tile[static_cast<int>(TileKind::kPairs)]);
#endif
  FillRows<Floats, kMaxTileRows>(kernels.tile[static_cast<int>(TileKind::kFloats)]);
  FillRows<Widened, kMaxTileRows>(kernels.tile[static_cast<int>(TileKind::kWidened)]);
  return kernels;
}

}  // namespace

constexpr TileKernels kTileKernels = MakeKernels();

}  // namespace plumbline::PLUMBLINE_ISA
