// The scalar definition of the matmul (numerics contract, sections 2 and 3): literal, slow, shared by no
// fast code. Call under ScopedFloatEnv.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "plumbline/base/dtype.h"
#include "plumbline/base/float16.h"
#include "plumbline/kernels/dequant/dequant.h"
#include "plumbline/tensor/matrix.h"
#include "plumbline/tensor/raw_tensor.h"

namespace plumbline::gemm_twin {

inline float Round(float value, Compute compute) {
  return compute == Compute::kBf16 ? Bf16ToF32(F32ToBf16(value)) : value;
}

// The values [n, k] of a weight: dequantised, then rounded to the compute type.
inline std::vector<float> WeightValues(const RawTensor& source, Compute compute) {
  const int64_t n = source.shape[0];
  const int64_t k = source.shape[1];
  std::vector<float> values(static_cast<size_t>(n * k));
  const auto* bytes = static_cast<const uint8_t*>(source.data);
  for (int64_t i = 0; i < n; ++i) {
    DequantizeRow(source.dtype, bytes + i * ByteSize(source.dtype, k), k, values.data() + i * k);
  }
  for (float& v : values) v = Round(v, compute);
  return values;
}

// Leaf i: k in [i * leaf, (i + 1) * leaf), the end of the row padded with zeros to an even k.
inline float Leaf(const float* w, const float* x, int64_t k, int64_t leaf, int64_t i, Compute compute) {
  float acc = 0.0f;
  const int64_t padded = (k + 1) / 2 * 2;
  for (int64_t j = i * leaf; j < (i + 1) * leaf && j < padded; ++j) {
    const float wj = j < k ? w[j] : 0.0f;
    const float xj = j < k ? Round(x[j], compute) : 0.0f;
    acc = std::fma(wj, xj, acc);
  }
  return acc;
}

// node(level, i) of the dyadic tree over the leaves.
inline float Node(const std::vector<float>& leaves, int level, int64_t i) {
  if (level == 0) return leaves[static_cast<size_t>(i)];
  const int64_t right_first_leaf = (2 * i + 1) << (level - 1);
  const float left = Node(leaves, level - 1, 2 * i);
  if (right_first_leaf >= static_cast<int64_t>(leaves.size())) return left;
  return left + Node(leaves, level - 1, 2 * i + 1);
}

// One output: w [k] values, x [k] float32.
inline float Dot(const float* w, const float* x, int64_t k, int64_t leaf, Compute compute) {
  std::vector<float> leaves;
  for (int64_t i = 0; i * leaf < k; ++i) leaves.push_back(Leaf(w, x, k, leaf, i, compute));
  int level = 0;
  while ((int64_t{1} << level) < static_cast<int64_t>(leaves.size())) ++level;
  return Node(leaves, level, 0);
}

// y [m, n] = x [m, k] * w [n, k]^T, plus bias [n] where not null; added to y where `accumulate`.
inline void Gemm(MatrixView<const float> x, const float* w, int64_t leaf, Compute compute, const float* bias,
                 bool accumulate, MatrixView<float> y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < y.cols; ++c) {
      float value = Dot(w + c * x.cols, x.Row(r), x.cols, leaf, compute);
      if (bias != nullptr) value = value + bias[c];
      y.Row(r)[c] = accumulate ? y.Row(r)[c] + value : value;
    }
  }
}

}  // namespace plumbline::gemm_twin
