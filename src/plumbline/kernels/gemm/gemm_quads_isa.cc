// Products of 8-bit integers: quantised panels in quad order against activations that are integers too
// (Compute::kInt8). The products of a group are summed without rounding, so how they are is nobody's
// business; what is rounded is in Fold.
#include "plumbline/kernels/gemm/gemm_tile.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

// Sums of four products of unsigned and signed bytes a lane: by vpdpbusd, or by way of sums of two that are
// int16, which hold as many as the codes' width allows.
#if defined(__AVX512VNNI__)
constexpr bool kDirect = true;
PLUMBLINE_INLINE I32x16 DotBytes(I32x16 sum, I32x16 codes, I32x16 x) {
  return {_mm512_dpbusd_epi32(sum.v, codes.v, x.v)};
}
#else
constexpr bool kDirect = false;
#endif

// A value is made here: the compiler may not put off additions of integers, whose order is free, until their
// terms fill the stack.
PLUMBLINE_INLINE void Pin(I32x16& a) {
#if defined(__AVX512F__)
  __asm__("" : "+v"(a.v));
#else
  __asm__("" : "+x"(a.lo), "+x"(a.hi));
#endif
}

#if defined(__AVX512F__)
constexpr int kRowsAtMost = kMaxQuadRows;
constexpr int kVectorsOf(int /*rows*/) { return 2; }
PLUMBLINE_INLINE I32x16 PairSums(I32x16 codes, I32x16 x) { return {_mm512_maddubs_epi16(codes.v, x.v)}; }
PLUMBLINE_INLINE void AddPairSums(I32x16& sums, I32x16 codes, I32x16 x) {
  sums.v = _mm512_add_epi16(sums.v, PairSums(codes, x).v);
}
PLUMBLINE_INLINE I32x16 SumPairs(I32x16 a) { return {_mm512_madd_epi16(a.v, _mm512_set1_epi16(1))}; }
PLUMBLINE_INLINE I32x16 AbsI8(I32x16 a) { return {_mm512_abs_epi8(a.v)}; }
PLUMBLINE_INLINE I32x16 WithSignOf(I32x16 x, I32x16 sign) {
  return {_mm512_mask_sub_epi8(x.v, _mm512_movepi8_mask(sign.v), _mm512_setzero_si512(), x.v)};
}
#else
constexpr int kRowsAtMost = 6;
// One row reads a panel once, more of them keep its sums in registers by going over it in two halves.
constexpr int kVectorsOf(int rows) { return rows <= 2 ? 2 : 1; }
PLUMBLINE_INLINE I32x16 PairSums(I32x16 codes, I32x16 x) {
  return {_mm256_maddubs_epi16(codes.lo, x.lo), _mm256_maddubs_epi16(codes.hi, x.hi)};
}
// x is the same in every lane. Of intrinsics the compiler makes sums that wander from register to register
// until some spill.
PLUMBLINE_INLINE void AddPairSums(I32x16& sums, I32x16 codes, I32x16 x) {
  __m256i pairs;
  __asm__(
      "vpmaddubsw %[x], %[codes_lo], %[pairs]\n\t"
      "vpaddw %[pairs], %[lo], %[lo]\n\t"
      "vpmaddubsw %[x], %[codes_hi], %[pairs]\n\t"
      "vpaddw %[pairs], %[hi], %[hi]"
      : [lo] "+x"(sums.lo), [hi] "+x"(sums.hi), [pairs] "=&x"(pairs)
      : [codes_lo] "x"(codes.lo), [codes_hi] "x"(codes.hi), [x] "x"(x.lo));
}
PLUMBLINE_INLINE I32x16 SumPairs(I32x16 a) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(a.lo, ones), _mm256_madd_epi16(a.hi, ones)};
}
PLUMBLINE_INLINE I32x16 AbsI8(I32x16 a) { return {_mm256_abs_epi8(a.lo), _mm256_abs_epi8(a.hi)}; }
PLUMBLINE_INLINE I32x16 WithSignOf(I32x16 x, I32x16 sign) {
  return {_mm256_sign_epi8(x.lo, sign.lo), _mm256_sign_epi8(x.hi, sign.hi)};
}
#endif

// A group of 32 k of a panel in quad order.
template <PackedFormat kFormat>
struct QuadGroup {
  static constexpr QuantLayout kLayout = Layout(kFormat);
  static constexpr bool kHalfScales = kFormat == PackedFormat::kQ6_K;

  const uint8_t* block;
  const uint8_t* group;

  static QuadGroup At(const void* panel, int64_t k) {
    const auto* block = static_cast<const uint8_t*>(panel) + k / kLayout.block * kLayout.BlockBytes();
    return {block, block + kLayout.HeadBytes() + k % kLayout.block / 32 * kLayout.GroupBytes()};
  }

  __attribute__((always_inline)) void Prefetch() const {
    if (kLayout.Groups() == 1 || group == block + kLayout.HeadBytes())
      PrefetchLines<kLayout.HeadBytes() / 64>(block);
    PrefetchLines<(kLayout.GroupBytes() + 63) / 64>(group);
  }

  // Quad kQuad of the sixteen columns from 16 `vector` on.
  template <int kQuad>
  __attribute__((always_inline)) I32x16 Codes(int vector) const {
    const uint8_t* low = group + kLayout.group_scale_bytes + 64 * vector;
    I32x16 codes;
    if constexpr (kLayout.low_bits == 8) {
      codes = LoadI(low + kQuad * 128);
    } else {
      codes = LoadI(low + kQuad / 2 * 128);
      if constexpr (kQuad % 2 == 1) codes = ShiftRight<4>(codes);
      codes = codes & SetI(0x0f0f0f0f);
    }
    if constexpr (kLayout.high_bits != 0) {
      constexpr int kPerWord = 8 / kLayout.high_bits;
      constexpr int kFrom = kLayout.high_bits * (kQuad % kPerWord);
      const I32x16 mask = SetI(kLayout.high_bits == 1 ? 0x10101010 : 0x30303030);
      I32x16 high = LoadI(low + kLayout.LowBytes() + kQuad / kPerWord * 128);
      if constexpr (kFrom < 4) high = ShiftLeft<4 - kFrom>(high);
      if constexpr (kFrom > 4) high = ShiftRight<kFrom - 4>(high);
      codes = codes | (high & mask);
    }
    return codes;
  }

  // Of quads from 4 kHalf on.
  template <int kHalf>
  __attribute__((always_inline)) F32x16 Scale(int vector) const {
    const F32x16 scale = WidenF16(block + 32 * vector);
    if constexpr (kHalfScales) return scale * ToF32(WidenI8(group + 32 * kHalf + 16 * vector));
    if constexpr (kLayout.group_scale_bytes != 0) return scale * ToF32(WidenU8(group + 16 * vector));
    return scale;
  }

  // Subtracted by the k formats.
  __attribute__((always_inline)) F32x16 Minimum(int vector) const {
    const F32x16 minimum = WidenF16(block + 64 + 32 * vector);
    if constexpr (kLayout.group_scale_bytes != 0) return minimum * ToF32(WidenU8(group + 32 + 16 * vector));
    return minimum;
  }
};

// The same once a panel is decoded for many rows (QuadKernels::decode): a code a byte, [8 quads][32 columns],
// then of each column float32 scales, of both halves where they have their own, and minima. [k / 32] of it.
template <PackedFormat kFormat>
struct DecodedGroup {
  static constexpr QuantLayout kLayout = Layout(kFormat);
  static constexpr int kScales = 1024, kHalves = QuadGroup<kFormat>::kHalfScales ? 2 : 1;
  static constexpr int kMinima = kScales + 128 * kHalves;
  static constexpr int kBytes = kMinima + (kLayout.has_minimum ? 128 : 0);
  static_assert(kBytes <= 32 * kPanel * 4, "scratch holds a float32 a weight");

  const uint8_t* group;

  static DecodedGroup At(const void* panel, int64_t k) {
    return {static_cast<const uint8_t*>(panel) + k / 32 * kBytes};
  }
  __attribute__((always_inline)) void Prefetch() const {}

  template <int kQuad>
  __attribute__((always_inline)) I32x16 Codes(int vector) const {
    return LoadI(group + 128 * kQuad + 64 * vector);
  }
  template <int kHalf>
  __attribute__((always_inline)) F32x16 Scale(int vector) const {
    return Load(reinterpret_cast<const float*>(group + kScales + 128 * kHalf + 64 * vector));
  }
  __attribute__((always_inline)) F32x16 Minimum(int vector) const {
    return Load(reinterpret_cast<const float*>(group + kMinima + 64 * vector));
  }

  template <int kQuad = 0>
  __attribute__((always_inline)) static void PutCodes(const QuadGroup<kFormat>& from, uint8_t* to) {
    PLUMBLINE_UNROLL
    for (int v = 0; v < 2; ++v) StoreI(to + 128 * kQuad + 64 * v, from.template Codes<kQuad>(v));
    if constexpr (kQuad < 7) PutCodes<kQuad + 1>(from, to);
  }

  __attribute__((always_inline)) static void Put(const QuadGroup<kFormat>& from, uint8_t* to) {
    PutCodes(from, to);
    PLUMBLINE_UNROLL
    for (int v = 0; v < 2; ++v) {
      float* scales = reinterpret_cast<float*>(to + kScales) + 16 * v;
      Store(scales, from.template Scale<0>(v));
      if constexpr (kHalves == 2) Store(scales + kPanel, from.template Scale<1>(v));
      if constexpr (kLayout.has_minimum)
        Store(reinterpret_cast<float*>(to + kMinima) + 16 * v, from.Minimum(v));
    }
  }
};

template <PackedFormat kFormat>
void Decode(const void* panel, int64_t k, void* out) {
  auto* to = static_cast<uint8_t*>(out);
  for (int64_t begin = 0; begin < k; begin += 32, to += DecodedGroup<kFormat>::kBytes) {
    const auto from = QuadGroup<kFormat>::At(panel, begin);
    from.Prefetch();
    DecodedGroup<kFormat>::Put(from, to);
  }
}

template <PackedFormat kFormat, typename Group, int kRows, int kVectors>
struct QuadTile {
  static constexpr QuantLayout kLayout = Layout(kFormat);
  static constexpr int kBits = kLayout.low_bits + kLayout.high_bits;
  static constexpr bool kHalfScales = QuadGroup<kFormat>::kHalfScales;
  static constexpr int kQuads = kHalfScales ? 4 : 8;  // under one scale
  // Quads whose pair sums an int16 holds: 127 (2^bits - 1) 2 each. Codes of 8 bits are made signed first.
  static constexpr int kHeld = kBits == 4 ? 8 : kBits == 5 ? 4 : kBits == 6 ? 2 : 1;
  static constexpr bool kSigned = !kDirect && kBits == 8;
  static constexpr int kOffset = kSigned ? 0 : kLayout.offset;

  using Sums = I32x16[kRows][kVectors];

  const TileArgs& args;
  const void* panel;
  const int first;  // vector of the panel

  static __attribute__((always_inline)) I32x16 X(const uint32_t* x, int word, int row) {
    return SetI(static_cast<int32_t>(x[row * kQuadWords + word]));
  }

  // sums += the products of quads [kQuad, kEnd).
  template <int kQuad, int kEnd>
  __attribute__((always_inline)) void AddQuads(Group group, const uint32_t* x, Sums& sums) const {
    if constexpr (kQuad < kEnd) {
      PLUMBLINE_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        I32x16 codes = group.template Codes<kQuad>(first + v);
        I32x16 sign;
        if constexpr (kSigned) {
          sign = codes ^ SetI(static_cast<int32_t>(0x80808080u));
          codes = AbsI8(sign);
        }
        PLUMBLINE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          I32x16 xr = X(x, kQuad, r);
#if defined(__AVX512VNNI__)
          sums[r][v] = DotBytes(sums[r][v], codes, xr);
#else
          if constexpr (kSigned) xr = WithSignOf(xr, sign);
          if constexpr (kHeld == 1) {
            sums[r][v] = sums[r][v] + SumPairs(PairSums(codes, xr));
          } else if constexpr (kQuad % kHeld == 0) {
            sums[r][v] = PairSums(codes, xr);
          } else {
            AddPairSums(sums[r][v], codes, xr);
          }
#endif
          Pin(sums[r][v]);
        }
      }
      AddQuads<kQuad + 1, kEnd>(group, x, sums);
    }
  }

  static __attribute__((always_inline)) void Clear(Sums& sums) {
    PLUMBLINE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      PLUMBLINE_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = SetI(0);
    }
  }

  // The sums of products of quads [kQuad, kEnd).
  template <int kQuad, int kEnd>
  __attribute__((always_inline)) void Dots(Group group, const uint32_t* x, Sums& sums) const {
    if constexpr (kDirect || kHeld == 1) {
      Clear(sums);
      AddQuads<kQuad, kEnd>(group, x, sums);
    } else {
      AddQuads<kQuad, kQuad + kHeld>(group, x, sums);
      Widen(sums);
      if constexpr (kQuad + kHeld < kEnd) {
        Sums rest;
        Dots<kQuad + kHeld, kEnd>(group, x, rest);
        PLUMBLINE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          PLUMBLINE_UNROLL
          for (int v = 0; v < kVectors; ++v) sums[r][v] = sums[r][v] + rest[r][v];
        }
      }
    }
  }

  static __attribute__((always_inline)) void Widen(Sums& sums) {
    PLUMBLINE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      PLUMBLINE_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = SumPairs(sums[r][v]);
    }
  }

  // acc = fma(scale xs, dot, acc), then acc = fma(minimum, xs sum, acc).
  template <int kHalf>
  __attribute__((always_inline)) void Fold(F32x16 (&acc)[kRows][kVectors], Group group,
                                           const uint32_t* x) const {
    Sums sums;
    Dots<4 * kHalf, 4 * kHalf + kQuads>(group, x, sums);
    F32x16 scale[kVectors], minimum[kVectors];
    PLUMBLINE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      scale[v] = group.template Scale<kHalf>(first + v);
      if constexpr (kLayout.has_minimum) minimum[v] = group.Minimum(first + v);
    }
    PLUMBLINE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const auto word = [&](int w) { return x[r * kQuadWords + w]; };
      const F32x16 xs = Set(__builtin_bit_cast(float, word(8)));
      PLUMBLINE_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        I32x16 dot = sums[r][v];
        if constexpr (kOffset != 0) {
          const auto sum = static_cast<int32_t>(kHalfScales ? word(10 + kHalf) : word(10) + word(11));
          dot = dot - SetI(kOffset * sum);
        }
        acc[r][v] = Fma(scale[v] * xs, ToF32(dot), acc[r][v]);
        if constexpr (kLayout.has_minimum) {
          const F32x16 weighed = Set(__builtin_bit_cast(float, word(9)));
          acc[r][v] = kLayout.group_scale_bytes != 0 ? Fnma(minimum[v], weighed, acc[r][v])
                                                     : Fma(minimum[v], weighed, acc[r][v]);
        }
      }
    }
  }

  __attribute__((always_inline)) void Chain(F32x16 (&acc)[kRows][kVectors], int64_t begin,
                                            int64_t end) const {
    for (int64_t k = begin; k < end; k += 32) {
      const Group group = Group::At(panel, k);
      const uint32_t* x = static_cast<const uint32_t*>(args.x) + k / 32 * kQuadWords * args.x_stride;
      if (first == 0) group.Prefetch();
      Fold<0>(acc, group, x);
      if constexpr (kHalfScales) Fold<1>(acc, group, x);
    }
  }
};

template <PackedFormat kFormat, typename Group, int kRows>
PLUMBLINE_INLINE void RunTile(const TileArgs& args, const void* panel) {
  constexpr int kVectors = kVectorsOf(kRows);
  for (int first = 0; first < 2 && 16 * first < args.columns; first += kVectors) {
    TileArgs part = args;
    part.y += 16 * first;
    part.columns -= 16 * first;
    if (part.bias != nullptr) part.bias += 16 * first;
    const QuadTile<kFormat, Group, kRows, kVectors> tile = {part, panel, first};
    RunLeaves<kRows, kVectors>(
        part, [&](F32x16(&acc)[kRows][kVectors], int64_t begin, int64_t end)
                  __attribute__((always_inline)) { tile.Chain(acc, begin, end); });
  }
}

template <PackedFormat kFormat, int kRows>
void Tile(const TileArgs& args) {
  RunTile<kFormat, QuadGroup<kFormat>, kRows>(args, args.w);
}

template <PackedFormat kFormat, int kRows>
void DecodedTile(const TileArgs& args) {
  RunTile<kFormat, DecodedGroup<kFormat>, kRows>(args, args.decoded);
}

// Of fewer rows there is little to gain, and codes of eight bits lie in bytes as they are.
constexpr int kDecodedRowsAtLeast = 5;

template <PackedFormat kFormat, int kRows = kRowsAtMost>
constexpr void Fill(QuadKernels& kernels) {
  constexpr int kIndex = static_cast<int>(kFormat);
  kernels.tile[kIndex][kRows - 1] = Tile<kFormat, kRows>;
  if constexpr (Layout(kFormat).low_bits != 8 && kRows >= kDecodedRowsAtLeast) {
    kernels.decode[kIndex] = Decode<kFormat>;
    kernels.decoded[kIndex][kRows - 1] = DecodedTile<kFormat, kRows>;
  }
  if constexpr (kRows > 1) Fill<kFormat, kRows - 1>(kernels);
}

constexpr QuadKernels MakeKernels() {
  QuadKernels kernels = {};
  Fill<PackedFormat::kQ8_0>(kernels);
  Fill<PackedFormat::kQ4_0>(kernels);
  Fill<PackedFormat::kQ4_1>(kernels);
  Fill<PackedFormat::kQ5_0>(kernels);
  Fill<PackedFormat::kQ5_1>(kernels);
  Fill<PackedFormat::kQ4_K>(kernels);
  Fill<PackedFormat::kQ5_K>(kernels);
  Fill<PackedFormat::kQ6_K>(kernels);
  return kernels;
}

}  // namespace

constexpr QuadKernels kQuadKernels = MakeKernels();

}  // namespace plumbline::PLUMBLINE_ISA
