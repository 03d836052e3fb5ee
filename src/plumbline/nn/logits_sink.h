// Takes logits in pieces instead of as a [rows, vocab] tensor.
#pragma once

#include <cstdint>
#include <span>

#include "plumbline/base/status.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

// Rows whose tiles are in flight at once: enough to amortise reading the head, few enough that a thread's
// tile [kStreamRows, 1024] stays in its second-level cache.
inline constexpr int64_t kStreamRows = 128;

// The selected rows come in blocks of consecutive rows, a block's logits tile by tile: scoring never holds
// more than a block's tiles. A rank sees the tiles whose ids it holds.
class LogitsSink {
 public:
  virtual ~LogitsSink() = default;
  // Rows [row_begin, row_end) of the selection, at most kStreamRows, come next. Returns one id per row whose
  // own logit is wanted first; the same on all ranks.
  virtual std::span<const int32_t> BeginRows(int64_t row_begin, int64_t row_end) = 0;
  virtual void TakeChosen(std::span<const float> logits) = 0;  // [row_end - row_begin]
  virtual void TakeTile(int64_t tile, MatrixView<const float> logits, int thread) = 0;
  // All tiles of this rank have been taken.
  virtual Status EndRows() = 0;
};

}  // namespace plumbline
