// Which probabilities dropout keeps: a function of (seed, batch, head, row, column) and nothing else.
//
//   counter = (batch, head, row, column / 64 * 16 + column % 16),  word = column / 16 % 4
//   dropped if Philox4x32(seed, counter)[word] < probability * 2^32
//
// so that one counter serves four columns and sixteen consecutive counters 64 consecutive columns.
#pragma once

#include <cstdint>

#include "plumbline/base/philox.h"
#include "plumbline/kernels/fused_attention/fused_attention.h"

namespace plumbline {

inline uint32_t FusedDropoutThreshold(float probability) {
  const double words = static_cast<double>(probability) * 0x1.0p32;
  return words >= 0x1.fffffffep31 ? 0xffffffffu : static_cast<uint32_t>(words);
}

inline float FusedKeepScale(float probability) { return 1.0f / (1.0f - probability); }

// Where a query row and a key column of a call lie in the larger whole.
inline uint32_t FusedDropoutRow(const FusedDropout& dropout, int64_t i) {
  return static_cast<uint32_t>(dropout.rows != nullptr ? dropout.rows[i] : dropout.row_offset + i);
}
inline uint32_t FusedDropoutColumn(const FusedDropout& dropout, int64_t j) {
  return static_cast<uint32_t>(dropout.columns != nullptr ? dropout.columns[j] : dropout.column_offset + j);
}

// b, h, i, j count in the call.
inline bool FusedDropoutKeeps(const FusedDropout& dropout, int64_t b, int64_t h, int64_t i, int64_t j) {
  const uint32_t column = FusedDropoutColumn(dropout, j);
  const auto words = Philox4x32(
      {dropout.seed[0], dropout.seed[1]},
      {static_cast<uint32_t>(dropout.batch_offset + b), static_cast<uint32_t>(dropout.head_offset + h),
       FusedDropoutRow(dropout, i), column / 64 * 16 + column % 16});
  return words[column / 16 % 4] >= FusedDropoutThreshold(dropout.probability);
}

}  // namespace plumbline
