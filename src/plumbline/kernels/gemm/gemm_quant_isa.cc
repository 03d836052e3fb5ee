// Quantised panels: decoded into a scratch panel for many rows, or in registers for few.
#include "plumbline/kernels/gemm/gemm_decode.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

#if defined(__AVX512BF16__)
struct ToPairs {
  PLUMBLINE_INLINE void Put(const F32x16 (&value)[4], int64_t pair, uint32_t* out) {
    StoreI(out + pair * kPanel, RoundPairs(value[0], value[1]));
    StoreI(out + pair * kPanel + 16, RoundPairs(value[2], value[3]));
  }
};
#endif

template <bool kRound>
struct ToFloats {
  PLUMBLINE_INLINE F32x16 Round(F32x16 value) {
    if constexpr (kRound) return RoundDecoded(value);
    return value;
  }
  PLUMBLINE_INLINE void Put(const F32x16 (&value)[4], int64_t pair, uint32_t* out) {
    auto* rows = reinterpret_cast<float*>(out) + 2 * pair * kPanel;
    PLUMBLINE_UNROLL
    for (int i = 0; i < 2; ++i) {
      F32x16 even, odd;
      SplitPairs(value[2 * i], value[2 * i + 1], even, odd);
      Store(rows + 16 * i, Round(even));
      Store(rows + kPanel + 16 * i, Round(odd));
    }
  }
};

template <PackedFormat kFormat, typename Target>
void Decode(const void* panel, int64_t k, void* out) {
  constexpr QuantLayout kLayout = Layout(kFormat);
  const auto* block = static_cast<const uint8_t*>(panel);
  Decoder<kFormat> decoder;
  for (int64_t begin = 0; begin < k; begin += kLayout.block, block += kLayout.BlockBytes()) {
    for (int group = 0; group < kLayout.Groups(); ++group) {
      const int64_t first_pair = begin / 2 + group * 16;
      decoder.ForEachPair(
          block, group, [&](const F32x16(&value)[4], int pair) __attribute__((always_inline)) {
            Target::Put(value, first_pair + pair, static_cast<uint32_t*>(out));
          });
    }
  }
}

#if defined(__AVX512BF16__)
template <PackedFormat kFormat, int kRows>
void QuantTile(const TileArgs& args) {
  constexpr QuantLayout kLayout = Layout(kFormat);
  Decoder<kFormat> decoder;
  RunLeaves<kRows, 2>(
      args, [&](F32x16(&acc)[kRows][2], int64_t begin, int64_t end) __attribute__((always_inline)) {
        const uint32_t* x = static_cast<const uint32_t*>(args.x) + begin / 2 * args.x_stride;
        for (int64_t k = begin; k < end; k += 32) {
          const auto* block = static_cast<const uint8_t*>(args.w) + k / kLayout.block * kLayout.BlockBytes();
          const int group = static_cast<int>(k % kLayout.block / 32);
          decoder.ForEachPair(
              block, group, [&](const F32x16(&value)[4], int) __attribute__((always_inline)) {
                const I32x16 w[2] = {RoundPairs(value[0], value[1]), RoundPairs(value[2], value[3])};
                PLUMBLINE_UNROLL
                for (int r = 0; r < kRows; ++r) {
                  const I32x16 xr = SetI(static_cast<int32_t>(x[r]));
                  acc[r][0] = DotPairs(acc[r][0], w[0], xr);
                  acc[r][1] = DotPairs(acc[r][1], w[1], xr);
                }
                x += args.x_stride;
              });
        }
      });
}

template <PackedFormat kFormat, int kRows>
constexpr void FillTiles(QuantKernels& kernels) {
  kernels.tile[static_cast<int>(kFormat)][kRows - 1] = QuantTile<kFormat, kRows>;
  if constexpr (kRows > 1) FillTiles<kFormat, kRows - 1>(kernels);
}
#endif

template <PackedFormat kFormat>
constexpr void FillFormat(QuantKernels& kernels) {
  constexpr int kIndex = static_cast<int>(kFormat);
  kernels.to_rounded[kIndex] = Decode<kFormat, ToFloats<true>>;
  kernels.to_floats[kIndex] = Decode<kFormat, ToFloats<false>>;
#if defined(__AVX512BF16__)
  kernels.to_pairs[kIndex] = Decode<kFormat, ToPairs>;
  FillTiles<kFormat, kMaxQuantRows>(kernels);
#endif
}

constexpr QuantKernels MakeKernels() {
  QuantKernels kernels = {};
  FillFormat<PackedFormat::kQ8_0>(kernels);
  FillFormat<PackedFormat::kQ4_0>(kernels);
  FillFormat<PackedFormat::kQ4_1>(kernels);
  FillFormat<PackedFormat::kQ5_0>(kernels);
  FillFormat<PackedFormat::kQ5_1>(kernels);
  FillFormat<PackedFormat::kQ4_K>(kernels);
  FillFormat<PackedFormat::kQ5_K>(kernels);
  FillFormat<PackedFormat::kQ6_K>(kernels);
  return kernels;
}

}  // namespace

constexpr QuantKernels kQuantKernels = MakeKernels();

}  // namespace plumbline::PLUMBLINE_ISA
