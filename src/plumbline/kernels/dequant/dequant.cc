#include "plumbline/kernels/dequant/dequant.h"

#include <bit>
#include <cstring>

#include "plumbline/base/check.h"
#include "plumbline/base/float16.h"

namespace plumbline {
namespace {

float LoadF16(const uint8_t* p) {
  f16_bits h;
  std::memcpy(&h, p, sizeof h);
  return F16ToF32(h);
}

uint32_t LoadU32(const uint8_t* p) {
  uint32_t u;
  std::memcpy(&u, p, sizeof u);
  return u;
}

void DequantizeQ4_0(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  const uint8_t* qs = block + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((qs[i] & 0x0f) - 8);
    out[i + 16] = d * static_cast<float>((qs[i] >> 4) - 8);
  }
}

void DequantizeQ4_1(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  const float m = LoadF16(block + 2);
  const uint8_t* qs = block + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(qs[i] & 0x0f) + m;
    out[i + 16] = d * static_cast<float>(qs[i] >> 4) + m;
  }
}

// Bit i of `high` is the fifth bit of element i.
int Low5(uint8_t q, uint32_t high, int i) { return (q & 0x0f) | static_cast<int>(((high >> i) & 1u) << 4); }
int High5(uint8_t q, uint32_t high, int i) {
  return (q >> 4) | static_cast<int>(((high >> (i + 16)) & 1u) << 4);
}

void DequantizeQ5_0(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  const uint32_t high = LoadU32(block + 2);
  const uint8_t* qs = block + 6;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(Low5(qs[i], high, i) - 16);
    out[i + 16] = d * static_cast<float>(High5(qs[i], high, i) - 16);
  }
}

void DequantizeQ5_1(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  const float m = LoadF16(block + 2);
  const uint32_t high = LoadU32(block + 4);
  const uint8_t* qs = block + 8;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(Low5(qs[i], high, i)) + m;
    out[i + 16] = d * static_cast<float>(High5(qs[i], high, i)) + m;
  }
}

void DequantizeQ8_0(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  const uint8_t* qs = block + 2;
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(qs[i]));
}

// The 8 scales and 8 minima of q4_k and q5_k, 6 bits each in 12 bytes: those of groups 0..3 lie in the low
// six bits of bytes 0..3 and 4..7; those of groups 4..7 have their low four bits in bytes 8..11 and their
// high two in the top of bytes 0..7.
struct GroupScales {
  float scale[8];
  float minimum[8];
};

GroupScales LoadGroupScales(const uint8_t* block) {
  const float d = LoadF16(block);
  const float dmin = LoadF16(block + 2);
  const uint8_t* s = block + 4;
  GroupScales out;
  for (int g = 0; g < 4; ++g) {
    out.scale[g] = d * static_cast<float>(s[g] & 0x3f);
    out.minimum[g] = dmin * static_cast<float>(s[g + 4] & 0x3f);
    out.scale[g + 4] = d * static_cast<float>((s[g + 8] & 0x0f) | ((s[g] >> 2) & 0x30));
    out.minimum[g + 4] = dmin * static_cast<float>((s[g + 8] >> 4) | ((s[g + 4] >> 2) & 0x30));
  }
  return out;
}

void DequantizeQ4_K(const uint8_t* block, float* out) {
  const GroupScales groups = LoadGroupScales(block);
  for (int g = 0; g < 8; ++g) {
    const uint8_t* qs = block + 16 + 32 * (g / 2);
    const int shift = 4 * (g % 2);
    for (int i = 0; i < 32; ++i) {
      out[32 * g + i] = groups.scale[g] * static_cast<float>((qs[i] >> shift) & 0x0f) - groups.minimum[g];
    }
  }
}

void DequantizeQ5_K(const uint8_t* block, float* out) {
  const GroupScales groups = LoadGroupScales(block);
  const uint8_t* qh = block + 16;
  for (int g = 0; g < 8; ++g) {
    const uint8_t* qs = block + 48 + 32 * (g / 2);
    const int shift = 4 * (g % 2);
    for (int i = 0; i < 32; ++i) {
      const int q = ((qs[i] >> shift) & 0x0f) | (((qh[i] >> g) & 1) << 4);
      out[32 * g + i] = groups.scale[g] * static_cast<float>(q) - groups.minimum[g];
    }
  }
}

// 8 runs of 32 elements, each of two groups of 16 with an int8 scale. Runs 0..3 use the first half of the low
// (64 bytes) and high (32 bytes) bits, runs 4..7 the second.
void DequantizeQ6_K(const uint8_t* block, float* out) {
  const float d = LoadF16(block + 208);
  for (int run = 0; run < 8; ++run) {
    const int part = run % 4;
    const uint8_t* ql = block + 64 * (run / 4) + 32 * (part % 2);
    const uint8_t* qh = block + 128 + 32 * (run / 4);
    const int low_shift = 4 * (part / 2);
    const int high_shift = 2 * part;
    for (int group = 0; group < 2; ++group) {
      const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + 2 * run + group]));
      for (int i = 16 * group; i < 16 * group + 16; ++i) {
        const int q = ((ql[i] >> low_shift) & 0x0f) | (((qh[i] >> high_shift) & 0x03) << 4);
        out[32 * run + i] = scale * static_cast<float>(q - 32);
      }
    }
  }
}

template <void (*kBlock)(const uint8_t*, float*)>
void DequantizeBlocks(DType dtype, const uint8_t* data, int64_t elements, float* out) {
  const DTypeInfo& info = Info(dtype);
  PLUMBLINE_CHECK(elements % info.block_elements == 0);
  for (int64_t i = 0; i < elements; i += info.block_elements) {
    kBlock(data, out + i);
    data += info.block_bytes;
  }
}

template <float (*kConvert)(uint16_t)>
void ConvertHalves(const uint8_t* data, int64_t elements, float* out) {
  for (int64_t i = 0; i < elements; ++i) {
    uint16_t h;
    std::memcpy(&h, data + 2 * i, sizeof h);
    out[i] = kConvert(h);
  }
}

}  // namespace

void DequantizeRow(DType dtype, const void* data, int64_t elements, float* out) {
  PLUMBLINE_CHECK(elements >= 0);
  const auto* bytes = static_cast<const uint8_t*>(data);
  switch (dtype) {
    case DType::kF32:
      if (elements > 0) std::memcpy(out, bytes, static_cast<size_t>(elements) * sizeof(float));
      return;
    case DType::kF16:
      return ConvertHalves<F16ToF32>(bytes, elements, out);
    case DType::kBF16:
      return ConvertHalves<Bf16ToF32>(bytes, elements, out);
    case DType::kQ4_0:
      return DequantizeBlocks<DequantizeQ4_0>(dtype, bytes, elements, out);
    case DType::kQ4_1:
      return DequantizeBlocks<DequantizeQ4_1>(dtype, bytes, elements, out);
    case DType::kQ5_0:
      return DequantizeBlocks<DequantizeQ5_0>(dtype, bytes, elements, out);
    case DType::kQ5_1:
      return DequantizeBlocks<DequantizeQ5_1>(dtype, bytes, elements, out);
    case DType::kQ8_0:
      return DequantizeBlocks<DequantizeQ8_0>(dtype, bytes, elements, out);
    case DType::kQ4_K:
      return DequantizeBlocks<DequantizeQ4_K>(dtype, bytes, elements, out);
    case DType::kQ5_K:
      return DequantizeBlocks<DequantizeQ5_K>(dtype, bytes, elements, out);
    case DType::kQ6_K:
      return DequantizeBlocks<DequantizeQ6_K>(dtype, bytes, elements, out);
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
    case DType::kU32:
      break;
  }
  PLUMBLINE_CHECK(false && "DequantizeRow of an integer type");
}

}  // namespace plumbline
