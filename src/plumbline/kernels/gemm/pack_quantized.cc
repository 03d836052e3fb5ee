#include <algorithm>

#include "plumbline/base/float16.h"
#include "plumbline/kernels/gemm/gguf_block.h"
#include "plumbline/kernels/gemm/pack_panel.h"

namespace plumbline {
namespace {

// The lowest `bits` of 32 / bits elements: Gather for whole words of 4 or 8 bits, which models are full of,
// eight bytes at a time.
template <int kStep, int kBits>
uint32_t GatherWord(const uint8_t* q) {
  constexpr uint64_t kEvenBytes = 0x00ff00ff00ff00ffu, kEvenWords = 0x0000ffff0000ffffu;
  constexpr uint64_t kLowNibbles = 0x0f0f0f0f0f0f0f0fu;
  if constexpr (kBits == 8 && kStep == 1) {
    return LoadWord<uint32_t>(q);
  } else if constexpr (kBits == 8) {
    uint64_t x = LoadWord<uint64_t>(q) & kEvenBytes;
    x = (x | x >> 8) & kEvenWords;
    return static_cast<uint32_t>(x | x >> 16);
  } else if constexpr (kStep == 1) {
    uint64_t x = LoadWord<uint64_t>(q) & kLowNibbles;
    x = (x | x >> 4) & kEvenBytes;
    x = (x | x >> 8) & kEvenWords;
    return static_cast<uint32_t>(x | x >> 16);
  } else {
    const auto join = [](uint64_t x) {  // nibbles in even bytes
      x &= kLowNibbles & kEvenBytes;
      x = (x | x >> 12) & 0x000000ff000000ffu;
      return static_cast<uint32_t>((x | x >> 24) & 0xffffu);
    };
    return join(LoadWord<uint64_t>(q)) | join(LoadWord<uint64_t>(q + 8)) << 16;
  }
}

// Bits [kFrom, kFrom + kBits) of kCount elements from `q` on, side by side.
template <int kStep, int kCount, int kFrom, int kBits>
uint32_t Gather(const uint8_t* q) {
  if constexpr (kFrom == 0 && kCount * kBits == 32 && kBits >= 4) {
    return GatherWord<kStep, kBits>(q);
  } else {
    uint32_t word = 0;
    for (int i = 0; i < kCount; ++i) {
      word |= ((static_cast<uint32_t>(q[kStep * i]) >> kFrom) & ((1u << kBits) - 1u)) << (kBits * i);
    }
    return word;
  }
}

// Bits [kFrom, kFrom + kBits) of a group's codes.
template <PanelOrder kOrder, int kFrom, int kBits>
void WriteBits(const uint8_t* q, int column, uint8_t* words) {
  constexpr int kStep = kOrder == PanelOrder::kPairs ? 2 : 1;
  constexpr int kElements = 32 / kStep, kPerWord = std::min(32 / kBits, kElements);
  for (int index = 0; index < WordStreams(kOrder); ++index) {
    const WordStream stream = WordStreamOf(kOrder, column, index);
    for (int w = 0; w * kPerWord < kElements; ++w) {
      const uint32_t word = Gather<kStep, kPerWord, kFrom, kBits>(q + stream.first + w * kPerWord * kStep);
      const int at = stream.width * w + stream.at;
      if constexpr (kPerWord * kBits == 16) {
        StoreWord(words + 2 * at, static_cast<uint16_t>(word));
      } else {
        StoreWord(words + 4 * at, word);
      }
    }
  }
}

// The same in quad order: those of eight quads, 8 / kBits of them to a word.
template <int kFrom, int kBits>
void WriteQuadBits(const uint8_t* q, int column, uint8_t* words) {
  constexpr uint32_t kMask = ((1u << kBits) - 1u) * 0x01010101u;
  constexpr int kPerWord = 8 / kBits;
  for (int w = 0; w * kPerWord < 8; ++w) {
    uint32_t word = 0;
    for (int i = 0; i < kPerWord; ++i) {
      const auto quad = LoadWord<uint32_t>(q + 4 * (w * kPerWord + i));
      word |= ((quad >> kFrom) & kMask) << (kBits * i);
    }
    StoreWord(words + 4 * (kPanel * w + column), word);
  }
}

template <PackedFormat kFormat, PanelOrder kOrder>
void WriteGroup(const BlockIntegers& in, int group, int column, uint8_t* out) {
  constexpr QuantLayout kLayout = Layout(kFormat);
  if constexpr (kLayout.group_scale_bytes != 0) {
    const bool halves = kFormat == PackedFormat::kQ6_K;  // a scale for each sixteen
    const int at = ScalePosition(kOrder, column);
    out[at] = in.sub_scale[halves ? 2 * group : group];
    out[kPanel + at] = halves ? in.sub_scale[2 * group + 1] : in.sub_minimum[group];
  }
  const uint8_t* q = in.q + 32 * group;
  uint8_t* low = out + kLayout.group_scale_bytes;
  uint8_t* high = low + kLayout.LowBytes();
  if constexpr (kOrder == PanelOrder::kQuads) {
    WriteQuadBits<0, kLayout.low_bits>(q, column, low);
    if constexpr (kLayout.high_bits != 0) WriteQuadBits<4, kLayout.high_bits>(q, column, high);
  } else {
    WriteBits<kOrder, 0, kLayout.low_bits>(q, column, low);
    if constexpr (kLayout.high_bits != 0) WriteBits<kOrder, 4, kLayout.high_bits>(q, column, high);
  }
}

template <PackedFormat kFormat, PanelOrder kOrder>
void WriteBlock(const BlockIntegers& in, int column, uint8_t* block) {
  constexpr QuantLayout kLayout = Layout(kFormat);
  const int at = ScalePosition(kOrder, column);
  StoreWord(block + 2 * at, in.d);
  if constexpr (kLayout.has_minimum) StoreWord(block + 64 + 2 * at, in.minimum);
  uint8_t* group = block + kLayout.HeadBytes();
  for (int g = 0; g < kLayout.Groups(); ++g, group += kLayout.GroupBytes()) {
    WriteGroup<kFormat, kOrder>(in, g, column, group);
  }
}

// The product with code 0 of a scale below zero is -0, and stays it where the minimum is -0.
bool IsPlain(const QuantLayout& layout, const BlockIntegers& integers) {
  const auto finite = [](uint16_t f16) { return (f16 & 0x7c00) != 0x7c00; };
  if (!layout.has_minimum) return finite(integers.d);
  return finite(integers.d) && finite(integers.minimum) && (integers.d & 0x8000) == 0;
}

bool IsExact(PackedFormat format, const BlockIntegers& integers) {
  const double scale = F16ToF32(integers.d);
  if (format == PackedFormat::kQ4_1) {
    const double minimum = F16ToF32(integers.minimum) - 2048.0 * scale;
    return static_cast<double>(static_cast<float>(minimum)) == minimum;
  }
  if (format != PackedFormat::kQ8_0 || (integers.d & 0x8000) != 0) return false;
  return scale > 0 || std::all_of(integers.q, integers.q + 32, [](uint8_t q) { return q >= 128; });
}

Decoding DecodingOf(PackedFormat format, const BlockIntegers& integers) {
  if (!IsPlain(Layout(format), integers)) return Decoding::kAny;
  return IsExact(format, integers) ? Decoding::kExact : Decoding::kPlain;
}

template <PackedFormat kFormat, PanelOrder kOrder>
Decoding PackPanel(const PanelSource& source, int64_t k, uint8_t* panel) {
  const int64_t blocks = k / Layout(kFormat).block;
  const int64_t block_bytes = Info(source.dtype).block_bytes;
  BlockIntegers integers;
  Decoding decoding = Decoding::kExact;
  for (int64_t b = 0; b < blocks; ++b, panel += Layout(kFormat).BlockBytes()) {
    for (int c = 0; c < source.columns; ++c) {
      ReadGgufBlock<kFormat>(source.row[c] + b * block_bytes, integers);
      decoding = std::min(decoding, DecodingOf(kFormat, integers));
      WriteBlock<kFormat, kOrder>(integers, c, panel);
    }
  }
  return decoding;
}

}  // namespace

Decoding PackQuantized(const PanelSource& source, int64_t k, PackedFormat format, PanelOrder order,
                       uint8_t* panel) {
  return ForQuantized(format, [&]<PackedFormat kFormat>() {
    if (order == PanelOrder::kPairs) return PackPanel<kFormat, PanelOrder::kPairs>(source, k, panel);
    if (order == PanelOrder::kColumns) return PackPanel<kFormat, PanelOrder::kColumns>(source, k, panel);
    return PackPanel<kFormat, PanelOrder::kQuads>(source, k, panel);
  });
}

}  // namespace plumbline
