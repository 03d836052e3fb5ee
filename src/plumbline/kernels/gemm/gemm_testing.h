// Random weights, activations and bitwise comparison for the tests of the matmul family.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "plumbline/base/dtype.h"
#include "plumbline/base/float16.h"
#include "plumbline/tensor/matrix.h"
#include "plumbline/tensor/raw_tensor.h"

namespace plumbline::gemm_testing {

inline constexpr DType kWeightTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                                         DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
inline constexpr Compute kComputes[] = {Compute::kBf16, Compute::kF32};

// Bytes of a weight, one byte off any alignment.
struct Weight {
  std::vector<uint8_t> bytes;
  RawTensor tensor;
};

// The float16 scales of a block, by their byte offset.
inline std::vector<int> ScaleOffsets(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208};
    default:
      return {0};
  }
}

// Small scales of either sign; exact powers of two and zero among them.
inline f16_bits RandomScale(std::mt19937_64& random) {
  const auto exponent = static_cast<uint32_t>(random() % 8);
  if (random() % 32 == 0) return static_cast<f16_bits>((random() & 0x8000u));
  return static_cast<f16_bits>((random() & 0x83ffu) | exponent << 10);
}

inline Weight RandomWeight(DType dtype, int64_t n, int64_t k, uint64_t seed) {
  std::mt19937_64 random(seed);
  Weight weight;
  weight.bytes.resize(static_cast<size_t>(n * ByteSize(dtype, k)) + 1);
  uint8_t* data = weight.bytes.data() + 1;
  const DTypeInfo& info = Info(dtype);
  std::normal_distribution<float> normal;
  if (IsQuantized(dtype)) {
    for (size_t i = 1; i < weight.bytes.size(); ++i) weight.bytes[i] = static_cast<uint8_t>(random());
    for (int64_t b = 0; b < n * k / info.block_elements; ++b) {
      for (const int at : ScaleOffsets(dtype)) {
        const f16_bits scale = RandomScale(random);
        std::memcpy(data + b * info.block_bytes + at, &scale, sizeof scale);
      }
    }
  } else {
    for (int64_t i = 0; i < n * k; ++i) {
      const float value = normal(random);
      const bf16_bits bf16 = F32ToBf16(value);
      const auto f16 = static_cast<f16_bits>((random() & 0x83ffu) | (10 + random() % 6) << 10);
      if (dtype == DType::kF32) std::memcpy(data + 4 * i, &value, 4);
      if (dtype == DType::kBF16) std::memcpy(data + 2 * i, &bf16, 2);
      if (dtype == DType::kF16) std::memcpy(data + 2 * i, &f16, 2);
    }
  }
  weight.tensor = {std::string(info.name), dtype, {n, k}, data};
  return weight;
}

// Makes a quantised weight plain (PackedWeight::plain): its scales finite and, where the type has minima, not
// below zero.
inline void MakePlain(Weight& weight) {
  const DTypeInfo& info = Info(weight.tensor.dtype);
  const std::vector<int> offsets = ScaleOffsets(weight.tensor.dtype);
  for (int64_t b = 0; b < weight.tensor.Elements() / info.block_elements; ++b) {
    for (const int at : offsets) {
      uint8_t* bytes = weight.bytes.data() + 1 + b * info.block_bytes + at;
      f16_bits scale;
      std::memcpy(&scale, bytes, sizeof scale);
      if ((scale & 0x7c00u) == 0x7c00u) scale = static_cast<f16_bits>(scale ^ 0x0400u);
      if (offsets.size() == 2 && at == offsets.front()) scale = static_cast<f16_bits>(scale & 0x7fffu);
      std::memcpy(bytes, &scale, sizeof scale);
    }
  }
}

inline Weight PlainWeight(DType dtype, int64_t n, int64_t k, uint64_t seed) {
  Weight weight = RandomWeight(dtype, n, k, seed);
  if (IsQuantized(dtype)) MakePlain(weight);
  return weight;
}

// A matrix whose rows start at odd addresses (of floats) and are not dense.
struct Matrix {
  std::vector<float> values;
  MatrixView<float> view;

  Matrix(int64_t rows, int64_t cols) : values(static_cast<size_t>(rows * (cols + 3) + 1), -7.5f) {
    view = {values.data() + 1, rows, cols, cols + 3};
  }
};

inline Matrix RandomMatrix(int64_t rows, int64_t cols, uint64_t seed) {
  Matrix matrix(rows, cols);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) matrix.view.Row(r)[c] = normal(random);
  }
  return matrix;
}

// Equal bits, or both NaN.
inline bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

// "" where equal, else the first difference.
inline std::string FirstDifference(MatrixView<const float> got, MatrixView<const float> want) {
  for (int64_t r = 0; r < want.rows; ++r) {
    for (int64_t c = 0; c < want.cols; ++c) {
      const float a = got.Row(r)[c];
      const float b = want.Row(r)[c];
      if (!SameBits(a, b)) {
        return fmt::format("[{}, {}]: got {}, want {}", r, c, a, b);
      }
    }
  }
  return "";
}

}  // namespace plumbline::gemm_testing
