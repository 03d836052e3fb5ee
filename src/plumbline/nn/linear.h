// A linear layer y = x W^T + b.
#pragma once

#include <vector>

#include "plumbline/kernels/gemm/gemm.h"

namespace plumbline {

struct Linear {
  PackedWeight weight;      // [out_features, in_features]
  std::vector<float> bias;  // [out_features] or empty

  GemmJob Job(MatrixView<float> y, bool accumulate = false) const {
    return {
        .weight = &weight, .y = y, .bias = bias.empty() ? nullptr : bias.data(), .accumulate = accumulate};
  }
  int64_t WeightBytes() const { return weight.bytes() + static_cast<int64_t>(bias.size() * sizeof(float)); }
};

}  // namespace plumbline
