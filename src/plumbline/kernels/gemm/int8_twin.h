// The scalar definition of the matmul with Compute::kInt8 (numerics contract, section 3): literal, slow,
// shared by no fast code. Call under ScopedFloatEnv.
//
// Activations, for each 32 consecutive k of a row: scale = largest |x| / 127, q = x * (127 / largest |x|) to
// the nearest integer, ties to even. Where the largest is below 2^-100 all are zero; where it is not finite q
// = 0 and the scale is that value, so that every product is NaN.
//
// Per output and leaf, from +0, for each group g of k that shares the weight's scale and the activations',
// ascending:
//
//   acc = fma(ws_g * xs_g, sum_k code_k q_k, acc)          code less the format's offset; the sum is exact
//   acc = fma(wm_g, xs_g * sum_k q_k, acc)                 where the format has minima (negative ones in
//   q4_k, q5_k)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "plumbline/base/dtype.h"
#include "plumbline/base/float16.h"
#include "plumbline/kernels/gemm/block_integers.h"
#include "plumbline/kernels/gemm/gemm_twin.h"
#include "plumbline/tensor/matrix.h"
#include "plumbline/tensor/raw_tensor.h"

namespace plumbline::int8_twin {

struct Activations {
  float scale = 0.0f;
  int q[32] = {};
};

inline Activations Quantize(const float* x) {
  float largest = 0.0f;
  for (int i = 0; i < 32; ++i) {
    if (std::isnan(x[i]) || std::fabs(x[i]) > largest) largest = std::fabs(x[i]);
    if (std::isnan(largest)) break;
  }
  Activations out;
  if (!std::isfinite(largest)) out.scale = largest;
  if (!std::isfinite(largest) || largest < 0x1p-100f) return out;
  out.scale = largest / 127.0f;
  const float inverse = 127.0f / largest;
  for (int i = 0; i < 32; ++i) out.q[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
  return out;
}

// Codes less their offset, and of each group of `length` its scale and (signed) minimum.
struct WeightRow {
  int length = 32;
  bool has_minimum = false;
  std::vector<int> code;
  std::vector<float> scale;
  std::vector<float> minimum;
};

inline WeightRow ReadRow(const RawTensor& source, int64_t row) {
  const PackedFormat format = QuantizedFormat(source.dtype).value();
  const QuantLayout layout = Layout(format);
  const bool k_format = layout.block == 256;
  WeightRow out;
  out.length = format == PackedFormat::kQ6_K ? 16 : 32;
  out.has_minimum = layout.has_minimum;
  const auto* block = static_cast<const uint8_t*>(source.data) + row * source.RowBytes();
  for (int64_t begin = 0; begin < source.shape[1]; begin += layout.block) {
    BlockIntegers in;
    ReadGgufBlock(format, block, in);
    block += Info(source.dtype).block_bytes;
    for (int i = 0; i < layout.block; ++i) out.code.push_back(in.q[i] - layout.offset);
    for (int g = 0; g * out.length < layout.block; ++g) {
      float scale = F16ToF32(in.d);
      float minimum = layout.has_minimum ? F16ToF32(in.minimum) : 0.0f;
      if (k_format && layout.has_minimum) {
        scale *= static_cast<float>(in.sub_scale[g]);
        minimum = -(minimum * static_cast<float>(in.sub_minimum[g]));
      } else if (k_format) {
        scale *= static_cast<float>(static_cast<int8_t>(in.sub_scale[g]));
      }
      out.scale.push_back(scale);
      out.minimum.push_back(minimum);
    }
  }
  return out;
}

// One output of a weight's row and of x [k], quantised.
inline float Dot(const WeightRow& w, const std::vector<Activations>& x, int64_t leaf) {
  const auto k = static_cast<int64_t>(w.code.size());
  std::vector<float> leaves;
  for (int64_t leaf_begin = 0; leaf_begin < k; leaf_begin += leaf) {
    float acc = 0.0f;
    for (int64_t begin = leaf_begin; begin < std::min(leaf_begin + leaf, k); begin += w.length) {
      const Activations& group = x[static_cast<size_t>(begin / 32)];
      int dot = 0, sum = 0;
      for (int i = 0; i < w.length; ++i) {
        dot += w.code[static_cast<size_t>(begin + i)] * group.q[begin % 32 + i];
        sum += group.q[begin % 32 + i];
      }
      const auto g = static_cast<size_t>(begin / w.length);
      acc = std::fma(w.scale[g] * group.scale, static_cast<float>(dot), acc);
      if (w.has_minimum) acc = std::fma(w.minimum[g], group.scale * static_cast<float>(sum), acc);
    }
    leaves.push_back(acc);
  }
  int level = 0;
  while ((int64_t{1} << level) < static_cast<int64_t>(leaves.size())) ++level;
  return gemm_twin::Node(leaves, level, 0);
}

inline std::vector<Activations> QuantizeRow(const float* x, int64_t k) {
  std::vector<Activations> out;
  for (int64_t begin = 0; begin < k; begin += 32) out.push_back(Quantize(x + begin));
  return out;
}

// y [m, n] = x [m, k] * w [n, k]^T of a quantised weight.
inline void Gemm(MatrixView<const float> x, const RawTensor& weight, int64_t leaf, MatrixView<float> y) {
  std::vector<std::vector<Activations>> rows;
  for (int64_t r = 0; r < x.rows; ++r) rows.push_back(QuantizeRow(x.Row(r), x.cols));
  for (int64_t c = 0; c < y.cols; ++c) {
    const WeightRow w = ReadRow(weight, c);
    for (int64_t r = 0; r < x.rows; ++r) y.Row(r)[c] = Dot(w, rows[static_cast<size_t>(r)], leaf);
  }
}

}  // namespace plumbline::int8_twin
