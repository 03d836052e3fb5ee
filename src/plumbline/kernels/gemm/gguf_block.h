// The integers of one GGUF block (kernels/dequant has the formats), read with the format known.
#pragma once

#include <cstdint>
#include <cstring>

#include "plumbline/base/check.h"
#include "plumbline/kernels/gemm/block_integers.h"
#include "plumbline/kernels/gemm/packed_words.h"

namespace plumbline {

// 32 elements: byte i holds element i in its low and element i + 16 in its high nibble.
inline void ReadNibbles(const uint8_t* qs, uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = qs[i] & 0x0f;
    q[i + 16] = qs[i] >> 4;
  }
}

inline void AddFifthBits(uint32_t high, uint8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] |= static_cast<uint8_t>(((high >> i) & 1u) << 4);
}

// The 8 scales and minima of q4_k and q5_k in 12 bytes.
inline void ReadSixBitScales(const uint8_t* s, BlockIntegers& out) {
  for (int g = 0; g < 4; ++g) {
    out.sub_scale[g] = s[g] & 0x3f;
    out.sub_minimum[g] = s[g + 4] & 0x3f;
    out.sub_scale[g + 4] = static_cast<uint8_t>((s[g + 8] & 0x0f) | ((s[g] >> 2) & 0x30));
    out.sub_minimum[g + 4] = static_cast<uint8_t>((s[g + 8] >> 4) | ((s[g + 4] >> 2) & 0x30));
  }
}

template <bool kFifthBit>
void ReadQ45K(const uint8_t* block, BlockIntegers& out) {
  ReadSixBitScales(block + 4, out);
  const uint8_t* qh = block + 16;
  const uint8_t* qs = block + (kFifthBit ? 48 : 16);
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) {
      int q = (qs[32 * (g / 2) + i] >> (4 * (g % 2))) & 0x0f;
      if (kFifthBit) q |= ((qh[i] >> g) & 1) << 4;
      out.q[32 * g + i] = static_cast<uint8_t>(q);
    }
  }
}

inline void ReadQ6K(const uint8_t* block, BlockIntegers& out) {
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

template <PackedFormat kFormat>
void ReadGgufBlock(const uint8_t* block, BlockIntegers& out) {
  constexpr QuantLayout kLayout = Layout(kFormat);
  out.d = LoadWord<uint16_t>(block + (kFormat == PackedFormat::kQ6_K ? 208 : 0));
  if constexpr (kLayout.has_minimum) out.minimum = LoadWord<uint16_t>(block + 2);
  if constexpr (kFormat == PackedFormat::kQ6_K) {
    ReadQ6K(block, out);
  } else if constexpr (kLayout.block == 256) {
    ReadQ45K<kLayout.high_bits == 1>(block, out);
  } else if constexpr (kLayout.low_bits == 8) {
    for (int i = 0; i < 32; ++i) out.q[i] = block[2 + i] ^ 0x80;
  } else {
    constexpr int kHead = kLayout.has_minimum ? 4 : 2;
    ReadNibbles(block + kHead + 4 * kLayout.high_bits, out.q);
    if constexpr (kLayout.high_bits == 1) AddFifthBits(LoadWord<uint32_t>(block + kHead), out.q);
  }
}

// fn.operator()<kFormat>() for a quantised format known only when the program runs.
template <typename Fn>
auto ForQuantized(PackedFormat format, const Fn& fn) {
  switch (format) {
    case PackedFormat::kQ4_0:
      return fn.template operator()<PackedFormat::kQ4_0>();
    case PackedFormat::kQ4_1:
      return fn.template operator()<PackedFormat::kQ4_1>();
    case PackedFormat::kQ5_0:
      return fn.template operator()<PackedFormat::kQ5_0>();
    case PackedFormat::kQ5_1:
      return fn.template operator()<PackedFormat::kQ5_1>();
    case PackedFormat::kQ4_K:
      return fn.template operator()<PackedFormat::kQ4_K>();
    case PackedFormat::kQ5_K:
      return fn.template operator()<PackedFormat::kQ5_K>();
    case PackedFormat::kQ6_K:
      return fn.template operator()<PackedFormat::kQ6_K>();
    case PackedFormat::kQ8_0:
    case PackedFormat::kBf16:
    case PackedFormat::kF32:
      break;
  }
  PLUMBLINE_CHECK(format == PackedFormat::kQ8_0);
  return fn.template operator()<PackedFormat::kQ8_0>();
}

}  // namespace plumbline
