#include "plumbline/kernels/gemm/block_integers.h"

#include <algorithm>
#include <cstring>

#include "plumbline/base/check.h"

namespace plumbline {
namespace {

uint16_t Load16(const uint8_t* p) {
  uint16_t u;
  std::memcpy(&u, p, sizeof u);
  return u;
}

uint32_t Load32(const uint8_t* p) {
  uint32_t u;
  std::memcpy(&u, p, sizeof u);
  return u;
}

void Store16(uint8_t* p, uint16_t u) { std::memcpy(p, &u, sizeof u); }
void Store32(uint8_t* p, uint32_t u) { std::memcpy(p, &u, sizeof u); }

// 32 elements: byte i holds element i in its low and element i + 16 in its high nibble.
void ReadNibbles(const uint8_t* qs, uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = qs[i] & 0x0f;
    q[i + 16] = qs[i] >> 4;
  }
}

void AddFifthBits(uint32_t high, uint8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] |= static_cast<uint8_t>(((high >> i) & 1u) << 4);
}

// The 8 scales and minima of q4_k and q5_k in 12 bytes (see kernels/dequant).
void ReadSixBitScales(const uint8_t* s, BlockIntegers& out) {
  for (int g = 0; g < 4; ++g) {
    out.sub_scale[g] = s[g] & 0x3f;
    out.sub_minimum[g] = s[g + 4] & 0x3f;
    out.sub_scale[g + 4] = static_cast<uint8_t>((s[g + 8] & 0x0f) | ((s[g] >> 2) & 0x30));
    out.sub_minimum[g + 4] = static_cast<uint8_t>((s[g + 8] >> 4) | ((s[g + 4] >> 2) & 0x30));
  }
}

void ReadQ45K(const uint8_t* block, bool fifth_bit, BlockIntegers& out) {
  out.d = Load16(block);
  out.minimum = Load16(block + 2);
  ReadSixBitScales(block + 4, out);
  const uint8_t* qh = block + 16;
  const uint8_t* qs = block + (fifth_bit ? 48 : 16);
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) {
      int q = (qs[32 * (g / 2) + i] >> (4 * (g % 2))) & 0x0f;
      if (fifth_bit) q |= ((qh[i] >> g) & 1) << 4;
      out.q[32 * g + i] = static_cast<uint8_t>(q);
    }
  }
}

void ReadQ6K(const uint8_t* block, BlockIntegers& out) {
  out.d = Load16(block + 208);
  std::memcpy(out.sub_scale, block + 192, 16);
  for (int run = 0; run < 8; ++run) {
    const int part = run % 4;
    const uint8_t* ql = block + 64 * (run / 4) + 32 * (part % 2);
    const uint8_t* qh = block + 128 + 32 * (run / 4);
    for (int i = 0; i < 32; ++i) {
      const int q = ((ql[i] >> (4 * (part / 2))) & 0x0f) | (((qh[i] >> (2 * part)) & 3) << 4);
      out.q[32 * run + i] = static_cast<uint8_t>(q);
    }
  }
}

void WriteSubScales(PackedFormat format, const BlockIntegers& in, int group, int at, uint8_t* scales) {
  if (format == PackedFormat::kQ6_K) {
    scales[at] = in.sub_scale[2 * group];
    scales[kPanel + at] = in.sub_scale[2 * group + 1];
  } else {
    scales[at] = in.sub_scale[group];
    scales[kPanel + at] = in.sub_minimum[group];
  }
}

void ReadSubScales(PackedFormat format, const uint8_t* scales, int group, int at, BlockIntegers& out) {
  if (format == PackedFormat::kQ6_K) {
    out.sub_scale[2 * group] = scales[at];
    out.sub_scale[2 * group + 1] = scales[kPanel + at];
  } else {
    out.sub_scale[group] = scales[at];
    out.sub_minimum[group] = scales[kPanel + at];
  }
}

// The elements of a group that share words: `step` apart from `first`. Word w lies at (width * w + at).
struct Stream {
  int first;
  int step;
  int at;
  int width;

  int Elements() const { return 32 / step; }
};

// Pair order has one for the odd and one for the even k of a column.
int Streams(PanelOrder order) { return order == PanelOrder::kPairs ? 2 : 1; }
Stream StreamOf(PanelOrder order, int column, int index) {
  if (order == PanelOrder::kColumns) return {0, 1, column, kPanel};
  const int odd = 1 - index;
  return {odd, 2, 16 * (column / 8) + column % 8 * 2 + index, 2 * kPanel};
}

uint64_t Load64(const uint8_t* p) {
  uint64_t u;
  std::memcpy(&u, p, sizeof u);
  return u;
}

// The lowest `bits` of 32 / bits elements: Gather for whole words of 4 or 8 bits, which models are full of,
// eight bytes at a time.
uint32_t GatherWord(const uint8_t* q, int step, int bits) {
  constexpr uint64_t kEvenBytes = 0x00ff00ff00ff00ffu, kEvenWords = 0x0000ffff0000ffffu;
  if (bits == 8) {
    if (step == 1) return Load32(q);
    uint64_t x = Load64(q) & kEvenBytes;
    x = (x | x >> 8) & kEvenWords;
    return static_cast<uint32_t>(x | x >> 16);
  }
  constexpr uint64_t kLowNibbles = 0x0f0f0f0f0f0f0f0fu;
  const auto join = [](uint64_t x) {  // nibbles in even bytes
    x = (x | x >> 12) & 0x000000ff000000ffu;
    return static_cast<uint32_t>((x | x >> 24) & 0xffffu);
  };
  if (step == 2) {
    return join(Load64(q) & kLowNibbles & kEvenBytes) | join(Load64(q + 8) & kLowNibbles & kEvenBytes) << 16;
  }
  uint64_t x = Load64(q) & kLowNibbles;
  x = (x | x >> 4) & kEvenBytes;
  x = (x | x >> 8) & kEvenWords;
  return static_cast<uint32_t>(x | x >> 16);
}

// Bits [from, from + bits) of `count` elements from `q` on, side by side.
uint32_t Gather(const uint8_t* q, int step, int count, int from, int bits) {
  if (from == 0 && count * bits == 32 && bits >= 4) return GatherWord(q, step, bits);
  uint32_t word = 0;
  for (int i = 0; i < count; ++i) {
    word |= ((static_cast<uint32_t>(q[step * i]) >> from) & ((1u << bits) - 1u)) << (bits * i);
  }
  return word;
}

void Scatter(uint32_t word, int step, int count, int from, int bits, uint8_t* q) {
  for (int i = 0; i < count; ++i) {
    q[step * i] = static_cast<uint8_t>(q[step * i] | ((word >> (bits * i)) & ((1u << bits) - 1u)) << from);
  }
}

// Quad order: `bits` from bit `from` on of the codes of eight quads, 8 / bits of them to a word.
void WriteQuads(const uint8_t* q, int from, int bits, int column, uint8_t* words) {
  const uint32_t mask = ((1u << bits) - 1u) * 0x01010101u;
  const int per_word = 8 / bits;
  for (int w = 0; w * per_word < 8; ++w) {
    uint32_t word = 0;
    for (int i = 0; i < per_word; ++i) {
      word |= ((Load32(q + 4 * (w * per_word + i)) >> from) & mask) << (bits * i);
    }
    Store32(words + 4 * (kPanel * w + column), word);
  }
}

void ReadQuads(const uint8_t* words, int from, int bits, int column, uint8_t* q) {
  const uint32_t mask = ((1u << bits) - 1u) * 0x01010101u;
  const int per_word = 8 / bits;
  for (int quad = 0; quad < 8; ++quad) {
    const uint32_t word = Load32(words + 4 * (kPanel * (quad / per_word) + column));
    const uint32_t codes = ((word >> (bits * (quad % per_word))) & mask) << from;
    Store32(q + 4 * quad, Load32(q + 4 * quad) | codes);
  }
}

void WriteGroup(const QuantLayout& layout, PanelOrder order, const uint8_t* q, int column, uint8_t* low) {
  uint8_t* high = low + layout.LowBytes();
  if (order == PanelOrder::kQuads) {
    WriteQuads(q, 0, layout.low_bits, column, low);
    if (layout.high_bits != 0) WriteQuads(q, 4, layout.high_bits, column, high);
    return;
  }
  for (int index = 0; index < Streams(order); ++index) {
    const Stream stream = StreamOf(order, column, index);
    const auto write = [&](uint8_t* words, int from, int bits) {
      const int per_word = std::min(32 / bits, stream.Elements());
      for (int w = 0; w * per_word < stream.Elements(); ++w) {
        const uint32_t word =
            Gather(q + stream.first + w * per_word * stream.step, stream.step, per_word, from, bits);
        const int at = stream.width * w + stream.at;
        if (per_word * bits == 16) {
          Store16(words + 2 * at, static_cast<uint16_t>(word));
        } else {
          Store32(words + 4 * at, word);
        }
      }
    };
    write(low, 0, layout.low_bits);
    if (layout.high_bits != 0) write(high, 4, layout.high_bits);
  }
}

void ReadGroup(const QuantLayout& layout, PanelOrder order, const uint8_t* low, int column, uint8_t* q) {
  const uint8_t* high = low + layout.LowBytes();
  std::fill_n(q, 32, uint8_t{0});
  if (order == PanelOrder::kQuads) {
    ReadQuads(low, 0, layout.low_bits, column, q);
    if (layout.high_bits != 0) ReadQuads(high, 4, layout.high_bits, column, q);
    return;
  }
  for (int index = 0; index < Streams(order); ++index) {
    const Stream stream = StreamOf(order, column, index);
    const auto read = [&](const uint8_t* words, int from, int bits) {
      const int per_word = std::min(32 / bits, stream.Elements());
      for (int w = 0; w * per_word < stream.Elements(); ++w) {
        const int at = stream.width * w + stream.at;
        const uint32_t word = per_word * bits == 16 ? Load16(words + 2 * at) : Load32(words + 4 * at);
        Scatter(word, stream.step, per_word, from, bits, q + stream.first + w * per_word * stream.step);
      }
    };
    read(low, 0, layout.low_bits);
    if (layout.high_bits != 0) read(high, 4, layout.high_bits);
  }
}

}  // namespace

std::optional<PackedFormat> QuantizedFormat(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return PackedFormat::kQ4_0;
    case DType::kQ4_1:
      return PackedFormat::kQ4_1;
    case DType::kQ5_0:
      return PackedFormat::kQ5_0;
    case DType::kQ5_1:
      return PackedFormat::kQ5_1;
    case DType::kQ8_0:
      return PackedFormat::kQ8_0;
    case DType::kQ4_K:
      return PackedFormat::kQ4_K;
    case DType::kQ5_K:
      return PackedFormat::kQ5_K;
    case DType::kQ6_K:
      return PackedFormat::kQ6_K;
    default:
      return std::nullopt;
  }
}

void ReadGgufBlock(PackedFormat format, const uint8_t* block, BlockIntegers& out) {
  switch (format) {
    case PackedFormat::kQ8_0:
      out.d = Load16(block);
      for (int i = 0; i < 32; ++i) out.q[i] = block[2 + i] ^ 0x80;
      return;
    case PackedFormat::kQ4_0:
      out.d = Load16(block);
      return ReadNibbles(block + 2, out.q);
    case PackedFormat::kQ4_1:
      out.d = Load16(block);
      out.minimum = Load16(block + 2);
      return ReadNibbles(block + 4, out.q);
    case PackedFormat::kQ5_0:
      out.d = Load16(block);
      ReadNibbles(block + 6, out.q);
      return AddFifthBits(Load32(block + 2), out.q);
    case PackedFormat::kQ5_1:
      out.d = Load16(block);
      out.minimum = Load16(block + 2);
      ReadNibbles(block + 8, out.q);
      return AddFifthBits(Load32(block + 4), out.q);
    case PackedFormat::kQ4_K:
      return ReadQ45K(block, false, out);
    case PackedFormat::kQ5_K:
      return ReadQ45K(block, true, out);
    case PackedFormat::kQ6_K:
      return ReadQ6K(block, out);
    case PackedFormat::kBf16:
    case PackedFormat::kF32:
      break;
  }
  PLUMBLINE_CHECK(IsQuantized(format));
}

void WritePackedBlock(PackedFormat format, PanelOrder order, const BlockIntegers& integers, int column,
                      uint8_t* block) {
  const QuantLayout layout = Layout(format);
  const int at = ScalePosition(order, column);
  Store16(block + 2 * at, integers.d);
  if (layout.has_minimum) Store16(block + 64 + 2 * at, integers.minimum);
  uint8_t* group = block + layout.HeadBytes();
  for (int g = 0; g < layout.Groups(); ++g, group += layout.GroupBytes()) {
    if (layout.group_scale_bytes != 0) WriteSubScales(format, integers, g, at, group);
    WriteGroup(layout, order, integers.q + 32 * g, column, group + layout.group_scale_bytes);
  }
}

void ReadPackedBlock(PackedFormat format, PanelOrder order, const uint8_t* block, int column,
                     BlockIntegers& out) {
  const QuantLayout layout = Layout(format);
  const int at = ScalePosition(order, column);
  out.d = Load16(block + 2 * at);
  if (layout.has_minimum) out.minimum = Load16(block + 64 + 2 * at);
  const uint8_t* group = block + layout.HeadBytes();
  for (int g = 0; g < layout.Groups(); ++g, group += layout.GroupBytes()) {
    if (layout.group_scale_bytes != 0) ReadSubScales(format, group, g, at, out);
    ReadGroup(layout, order, group + layout.group_scale_bytes, column, out.q + 32 * g);
  }
}

}  // namespace plumbline
