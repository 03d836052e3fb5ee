// For tests of row kernels: a float32 matrix at an odd address, with gaps between its rows and a border
// around it that show whether anything was written where it should not be.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "plumbline/tensor/matrix.h"

namespace plumbline {

class GuardedMatrix {
 public:
  GuardedMatrix(int64_t rows, int64_t cols)
      : rows_(rows),
        cols_(cols),
        storage_(static_cast<size_t>(kBorder + rows * (cols + kGap) + kBorder), kSentinel) {}

  // Normally distributed values times `scale`.
  GuardedMatrix(int64_t rows, int64_t cols, uint32_t seed, float scale = 1.0f) : GuardedMatrix(rows, cols) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < cols; ++i) View().Row(r)[i] = scale * normal(random);
    }
  }

  MatrixView<float> View() { return {storage_.data() + kBorder, rows_, cols_, cols_ + kGap}; }

  bool BorderIntact() {
    std::vector<float> copy = storage_;
    for (int64_t r = 0; r < rows_; ++r) {
      std::fill_n(copy.begin() + kBorder + r * (cols_ + kGap), cols_, kSentinel);
    }
    return std::all_of(copy.begin(), copy.end(), [](float x) { return x == kSentinel; });
  }

 private:
  static constexpr int64_t kBorder = 17;  // no multiple of the vector's 16
  static constexpr int64_t kGap = 3;
  static constexpr float kSentinel = -1234.5f;

  int64_t rows_;
  int64_t cols_;
  std::vector<float> storage_;
};

inline uint32_t FloatBits(float x) { return std::bit_cast<uint32_t>(x); }

}  // namespace plumbline
