// Single elements of the arrays of fused attention, as float32.
#pragma once

#include <bit>
#include <cstdint>

#include "plumbline/base/dtype.h"
#include "plumbline/base/float16.h"

namespace plumbline {

inline float LoadFusedElement(DType dtype, const void* data, int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[i];
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  return dtype == DType::kBF16 ? Bf16ToF32(bits) : F16ToF32(bits);
}

inline void StoreFusedElement(DType dtype, void* data, int64_t i, float x) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[i] = x;
  } else {
    static_cast<uint16_t*>(data)[i] = dtype == DType::kBF16 ? F32ToBf16(x) : F32ToF16(x);
  }
}

// What products of this type are rounded to: float16 is widened.
inline Compute FusedCompute(DType dtype) { return dtype == DType::kBF16 ? Compute::kBf16 : Compute::kF32; }

}  // namespace plumbline
