// bfloat16 and IEEE binary16 <-> float32, bit for bit what the vector instructions do under the
// contract's modes (round to nearest even, denormals are zero, flush to zero).
#pragma once

#include <bit>
#include <cstdint>

namespace plumbline {

using bf16_bits = uint16_t;
using f16_bits = uint16_t;

constexpr float Bf16ToF32(bf16_bits h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

// Round to nearest even as vcvtneps2bf16 does: a denormal becomes a zero of its sign, a NaN is quieted
// and keeps its upper payload bits.
constexpr bf16_bits F32ToBf16(float f) {
  uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t exponent = bits & 0x7f800000u;
  if (exponent == 0) return static_cast<bf16_bits>((bits >> 16) & 0x8000u);
  if (exponent == 0x7f800000u && (bits & 0x007fffffu) != 0)
    return static_cast<bf16_bits>((bits >> 16) | 0x0040u);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<bf16_bits>(bits >> 16);
}

// Exact for every binary16 value, denormals included.
constexpr float F16ToF32(f16_bits h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  const int shift = std::countl_zero(mantissa) - 21;  // brings the leading one to bit 10
  mantissa = (mantissa << shift) & 0x3ffu;
  return std::bit_cast<float>(sign | (static_cast<uint32_t>(113 - shift) << 23) | (mantissa << 13));
}

// Round to nearest even as vcvtps2ph does: a denormal float becomes a zero of its sign, results below 2^-14
// are denormal binary16, from 65520 on infinity; a NaN is quieted and keeps its upper payload bits.
constexpr f16_bits F32ToF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (bits >> 16) & 0x8000u, exponent = (bits >> 23) & 0xffu;
  const uint32_t mantissa = bits & 0x007fffffu;
  if (exponent == 0xff && mantissa != 0) return static_cast<f16_bits>(sign | 0x7e00u | (mantissa >> 13));
  if (exponent > 142) return static_cast<f16_bits>(sign | 0x7c00u);
  if (exponent < 102) return static_cast<f16_bits>(sign);
  const bool denormal = exponent < 113;
  const uint32_t shift = denormal ? 126 - exponent : 13;
  const uint32_t value = denormal ? mantissa | 0x00800000u : ((exponent - 112) << 23) | mantissa;
  const uint32_t half = 1u << (shift - 1);
  return static_cast<f16_bits>(sign | ((value + (half - 1) + ((value >> shift) & 1u)) >> shift));
}

}  // namespace plumbline
