// Quantised panels: decoded into a scratch panel for many rows, or in registers for few.
#include "plumbline/kernels/gemm/gemm_decode.h"
#include "plumbline/kernels/gemm/gemm_decode_columns.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

constexpr bool kSignedZeros(PackedFormat format) { return !Layout(format).has_minimum; }
constexpr bool HasExact(PackedFormat format) {
  return format == PackedFormat::kQ4_1 || format == PackedFormat::kQ8_0;
}

template <PackedFormat kFormat, DecodeTarget kTarget>
PLUMBLINE_INLINE F32x16 Finish(F32x16 value) {
  if constexpr (kTarget == DecodeTarget::kRounded) return RoundDecoded(value);
  if constexpr (kTarget == DecodeTarget::kRoundedPlain) return RoundPlain<kSignedZeros(kFormat)>(value);
  if constexpr (kTarget == DecodeTarget::kRoundedExact) return RoundPlain<false>(value);
  return value;
}

// Pair vectors -> one row of pairs, or two of float32.
template <PackedFormat kFormat, DecodeTarget kTarget>
PLUMBLINE_INLINE void PutPair(const F32x16 (&value)[4], int64_t pair, void* out) {
#if defined(__AVX512BF16__)
  if constexpr (kTarget == DecodeTarget::kPairs) {
    StoreI(static_cast<uint32_t*>(out) + pair * kPanel, RoundPairs(value[0], value[1]));
    StoreI(static_cast<uint32_t*>(out) + pair * kPanel + 16, RoundPairs(value[2], value[3]));
    return;
  }
#endif
  auto* rows = static_cast<float*>(out) + 2 * pair * kPanel;
  PLUMBLINE_UNROLL
  for (int i = 0; i < 2; ++i) {
    F32x16 even, odd;
    SplitPairs(value[2 * i], value[2 * i + 1], even, odd);
    Store(rows + 16 * i, Finish<kFormat, kTarget>(even));
    Store(rows + kPanel + 16 * i, Finish<kFormat, kTarget>(odd));
  }
}

template <PackedFormat kFormat, DecodeTarget kTarget>
void DecodePairs(const void* panel, int64_t k, void* out) {
  constexpr QuantLayout kLayout = Layout(kFormat);
  const auto* block = static_cast<const uint8_t*>(panel);
  Decoder<kFormat> decoder;
  for (int64_t begin = 0; begin < k; begin += kLayout.block, block += kLayout.BlockBytes()) {
    for (int group = 0; group < kLayout.Groups(); ++group) {
      const int64_t first_pair = begin / 2 + group * 16;
      decoder.ForEachPair(
          block, group, [&](const F32x16(&value)[4], int pair) __attribute__((always_inline)) {
            PutPair<kFormat, kTarget>(value, first_pair + pair, out);
          });
    }
  }
}

template <PackedFormat kFormat, DecodeTarget kTarget>
void DecodeColumns(const void* panel, int64_t k, void* out) {
  constexpr QuantLayout kLayout = Layout(kFormat);
  const auto* block = static_cast<const uint8_t*>(panel);
  ColumnDecoder<kFormat, kTarget == DecodeTarget::kRoundedExact> decoder;
  I32x16 even[2];  // of the k before, where pairs are wanted
  for (int64_t begin = 0; begin < k; begin += kLayout.block, block += kLayout.BlockBytes()) {
    for (int group = 0; group < kLayout.Groups(); ++group) {
      const int64_t first = begin + group * 32;
      decoder.ForEachK(
          block, group, [&](const F32x16(&value)[2], int at) __attribute__((always_inline)) {
            const int64_t row = first + at;
            PLUMBLINE_UNROLL
            for (int i = 0; i < 2; ++i) {
              if constexpr (kTarget == DecodeTarget::kPairs) {
                const I32x16 bits = AsI32(RoundDecoded(value[i]));
                if (at % 2 == 0) even[i] = bits;
                if (at % 2 == 0) continue;
                StoreI(static_cast<uint32_t*>(out) + row / 2 * kPanel + 16 * i,
                       even[i] | ShiftRight<16>(bits));
              } else {
                Store(static_cast<float*>(out) + row * kPanel + 16 * i, Finish<kFormat, kTarget>(value[i]));
              }
            }
          });
    }
  }
}

// bf16 pairs, which lie in column order already.
void WidenPairs(const void* panel, int64_t k, void* out) {
  const auto* pairs = static_cast<const uint32_t*>(panel);
  auto* rows = static_cast<float*>(out);
  for (int64_t p = 0; p < (k + 1) / 2; ++p, pairs += kPanel, rows += 2 * kPanel) {
    PrefetchLines<2>(pairs);
    PLUMBLINE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const I32x16 pair = LoadI(pairs + 16 * i);
      Store(rows + 16 * i, PairHigh(pair));
      Store(rows + kPanel + 16 * i, PairLow(pair));
    }
  }
}

// Few rows of float32 activations: y's columns are the lanes, decoded as they are multiplied.
template <PackedFormat kFormat, DecodeTarget kTarget, int kRows>
void ColumnTile(const TileArgs& args) {
  constexpr QuantLayout kLayout = Layout(kFormat);
  ColumnDecoder<kFormat, kTarget == DecodeTarget::kRoundedExact> decoder;
  RunLeaves<kRows, 2>(
      args, [&](F32x16(&acc)[kRows][2], int64_t begin, int64_t end) __attribute__((always_inline)) {
        for (int64_t k = begin; k < end; k += 32) {
          const float* x = static_cast<const float*>(args.x) + k * args.x_stride;
          const auto* block = static_cast<const uint8_t*>(args.w) + k / kLayout.block * kLayout.BlockBytes();
          const int group = static_cast<int>(k % kLayout.block / 32);
          decoder.ForEachK(
              block, group, [&](const F32x16(&value)[2], int) __attribute__((always_inline)) {
                const F32x16 w[2] = {Finish<kFormat, kTarget>(value[0]), Finish<kFormat, kTarget>(value[1])};
                PLUMBLINE_UNROLL
                for (int r = 0; r < kRows; ++r) {
                  const F32x16 xr = Set(x[r]);
                  acc[r][0] = Fma(w[0], xr, acc[r][0]);
                  acc[r][1] = Fma(w[1], xr, acc[r][1]);
                }
                x += args.x_stride;
              });
        }
      });
}

#if defined(__AVX512BF16__)
template <PackedFormat kFormat, int kRows>
void PairTile(const TileArgs& args) {
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
#endif

template <PackedFormat kFormat, DecodeTarget kTarget>
constexpr void FillDecoders(QuantKernels& kernels) {
  DecodeFn(&decode)[kPanelOrders] = kernels.decode[static_cast<int>(kTarget)][static_cast<int>(kFormat)];
  decode[static_cast<int>(PanelOrder::kPairs)] = DecodePairs<kFormat, kTarget>;
  decode[static_cast<int>(PanelOrder::kColumns)] = DecodeColumns<kFormat, kTarget>;
}

template <PackedFormat kFormat, int kRows>
constexpr void FillTiles(QuantKernels& kernels) {
  constexpr int kIndex = static_cast<int>(kFormat);
#if defined(__AVX512BF16__)
  kernels.pairs[kIndex][kRows - 1] = PairTile<kFormat, kRows>;
#endif
  if constexpr (kRows <= kMaxColumnRows) {
    kernels.rounded[kIndex][kRows - 1] = ColumnTile<kFormat, DecodeTarget::kRoundedPlain, kRows>;
    if constexpr (HasExact(kFormat)) {
      kernels.exact[kIndex][kRows - 1] = ColumnTile<kFormat, DecodeTarget::kRoundedExact, kRows>;
    }
    kernels.floats[kIndex][kRows - 1] = ColumnTile<kFormat, DecodeTarget::kFloats, kRows>;
  }
  if constexpr (kRows > 1) FillTiles<kFormat, kRows - 1>(kernels);
}

template <PackedFormat kFormat>
constexpr void FillFormat(QuantKernels& kernels) {
#if defined(__AVX512BF16__)
  FillDecoders<kFormat, DecodeTarget::kPairs>(kernels);
#endif
  FillDecoders<kFormat, DecodeTarget::kRounded>(kernels);
  FillDecoders<kFormat, DecodeTarget::kRoundedPlain>(kernels);
  if constexpr (HasExact(kFormat)) FillDecoders<kFormat, DecodeTarget::kRoundedExact>(kernels);
  FillDecoders<kFormat, DecodeTarget::kFloats>(kernels);
  FillTiles<kFormat, kMaxQuantRows>(kernels);
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
  for (int target = 0; target < kDecodeTargets; ++target) {
    if (target == static_cast<int>(DecodeTarget::kPairs)) continue;
    for (DecodeFn& decode : kernels.decode[target][static_cast<int>(PackedFormat::kBf16)])
      decode = WidenPairs;
  }
  return kernels;
}

}  // namespace

constexpr QuantKernels kQuantKernels = MakeKernels();

}  // namespace plumbline::PLUMBLINE_ISA
