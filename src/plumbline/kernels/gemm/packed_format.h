// The storage forms of a packed weight and where the integers of a quantised one lie in a panel of 32
// columns. Plain enough for *_isa.cc files.
//
// Three orders of lanes (PanelOrder). In pair order values are decoded eight columns and two k at a time:
// "pair vector" v of pair p (k = 2p, 2p + 1) has sixteen lanes, lane l being column 8 v + l / 2 and, where l
// is odd, the even k of the pair. Rounding two such vectors to bf16 with one instruction gives the pairs that
// vdpbf16ps reads, even k high. In column order a vector is one k of sixteen columns: what float32
// multiply-adds read. In quad order a 32-bit lane holds four consecutive k of a column as bytes (a quad; quad
// i of a group holds k = 4 i + b in byte b): what products of 8-bit integers read.
#pragma once

#include <cstdint>

namespace plumbline {

// Columns of one panel. Panel p holds output columns [32 p, 32 p + 32); columns past n are zero.
inline constexpr int kPanel = 32;

// How a packed weight is stored. kBf16: [k/2][32][2] bf16 a panel, the even k of a pair in the high half
// of its 32-bit word. kF32: [k][32] float32 a panel; both with k rounded up to even, the last row zero.
// The quantised forms keep GGUF's integers, rearranged so that vector lanes run over columns (QuantLayout).
enum class PackedFormat : uint8_t { kBf16, kF32, kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ4_K, kQ5_K, kQ6_K };
inline constexpr int kPackedFormats = 10;

enum class PanelOrder : uint8_t { kPairs, kColumns, kQuads };
inline constexpr int kPanelOrders = 3;

// What a quantised weight's blocks allow its decoders, each what the one before it does and more:
// kPlain: every value is finite and no value of fma(scale, code, minimum) is -0;
// kExact: q4_1: minimum - 2048 scale is a float32 without rounding; q8_0: no value is -0. Never of another
// format.
enum class Decoding : uint8_t { kAny, kPlain, kExact };

// A panel is a sequence of blocks of `block` k:
//
//   float16 d[32], then, where has_minimum, float16 m[32]          one a column, in ScalePosition order
//   for each group of 32 k:
//     uint8 sub_scales[group_scale_bytes]   q4_k, q5_k: scale[32], minimum[32]; q6_k: int8 scale[2][32], one
//                                           for each 16 k; in ScalePosition order
//     low bits, in pair order
//                 low_bits 4: uint32 [2][4 pair vectors][16 lanes], pair 8 h + i in bits 4 i.. of word h
//                 low_bits 8: uint32 [4][4][16], pair 4 h + i in bits 8 i.. of word h
//     low bits, in column order
//                 low_bits 4: uint32 [4][32 columns], k = 8 w + i in bits 4 i.. of word w
//                 low_bits 8: uint32 [8][32], k = 4 w + i in bits 8 i.. of word w
//     high bits, in pair order
//                 high_bits 1: uint16 [4][16], pair p in bit p
//                 high_bits 2: uint32 [4][16], pair p in bits 2 p..
//     high bits, in column order
//                 high_bits 1: uint32 [32], k in bit k
//                 high_bits 2: uint32 [2][32], k = 16 w + i in bits 2 i.. of word w
//     low bits, in quad order
//                 low_bits 4: uint32 [4][32 columns], quad 2 w + h in bits 4 h.. of each byte of word w
//                 low_bits 8: uint32 [8][32], quad w in word w
//     high bits, in quad order
//                 high_bits 1: uint32 [32], quad i in bit i of each byte
//                 high_bits 2: uint32 [2][32], quad 4 w + i in bits 2 i.. of each byte of word w
//
// Codes are stored unsigned. The value is scale * (code - offset) or fma(scale, code - offset, minimum):
// every product is exact in float32, so the single rounding is the reference's.
struct QuantLayout {
  int block;
  int low_bits;
  int high_bits;
  bool has_minimum;
  int group_scale_bytes;
  int offset;

  constexpr int HeadBytes() const { return has_minimum ? 128 : 64; }
  constexpr int LowBytes() const { return low_bits * 128; }
  constexpr int HighBytes() const { return high_bits * 128; }
  constexpr int GroupBytes() const { return group_scale_bytes + LowBytes() + HighBytes(); }
  constexpr int Groups() const { return block / 32; }
  constexpr int BlockBytes() const { return HeadBytes() + Groups() * GroupBytes(); }
};

// Where a column's scale lies. In pair order columns j and j + 8 of each 16 are side by side, so that
// duplicating the even and the odd lanes of a vector of scales gives the lanes of two pair vectors.
constexpr int ScalePosition(PanelOrder order, int column) {
  return order == PanelOrder::kPairs ? column / 16 * 16 + column % 8 * 2 + column / 8 % 2 : column;
}

// Decoding in column order reads words at every byte offset: up to this many bytes behind the last panel.
inline constexpr int64_t kPanelSlack = 64;

constexpr bool IsQuantized(PackedFormat format) {
  return format != PackedFormat::kBf16 && format != PackedFormat::kF32;
}

// Defined for quantised formats.
constexpr QuantLayout Layout(PackedFormat format) {
  switch (format) {
    case PackedFormat::kQ8_0:
      return {32, 8, 0, false, 0, 128};
    case PackedFormat::kQ4_0:
      return {32, 4, 0, false, 0, 8};
    case PackedFormat::kQ4_1:
      return {32, 4, 0, true, 0, 0};
    case PackedFormat::kQ5_0:
      return {32, 4, 1, false, 0, 16};
    case PackedFormat::kQ5_1:
      return {32, 4, 1, true, 0, 0};
    case PackedFormat::kQ4_K:
      return {256, 4, 0, true, 64, 0};
    case PackedFormat::kQ5_K:
      return {256, 4, 1, true, 64, 0};
    case PackedFormat::kQ6_K:
      return {256, 4, 2, false, 64, 32};
    case PackedFormat::kBf16:
    case PackedFormat::kF32:
      break;
  }
  return {};
}

// Bytes of one panel of `k` (a multiple of the block of a quantised format).
constexpr int64_t PanelBytes(PackedFormat format, int64_t k) {
  if (format == PackedFormat::kBf16) return (k + 1) / 2 * kPanel * 4;
  if (format == PackedFormat::kF32) return (k + 1) / 2 * kPanel * 8;
  const QuantLayout layout = Layout(format);
  return k / layout.block * layout.BlockBytes();
}

}  // namespace plumbline
