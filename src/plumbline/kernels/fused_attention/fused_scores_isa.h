// From raw dot products to scores, and dropout, for the rows of one tile against one key block, for *_isa.cc
// files.
#pragma once

#include "plumbline/kernels/attention/block_tile.h"
#include "plumbline/kernels/fused_attention/fused_dropout_isa.h"
#include "plumbline/kernels/fused_attention/fused_pack_isa.h"

namespace plumbline::PLUMBLINE_ISA {

class FusedBlockScores {
 public:
  FusedBlockScores(const FusedCall& call, const FusedRows& rows, const FusedKeys& keys, int64_t block)
      : call_(call), rows_(rows), tokens_(keys.tokens + block * 64) {
    while (count_ < 64 && tokens_[count_] >= 0) ++count_;
    if (call.bias != 0) {
      for (int i = 1; i < count_; ++i) consecutive_ = consecutive_ && tokens_[i] == tokens_[0] + i;
    }
    if (!call.dropout) return;
    columns_ = keys.dropout_columns + block * 64;
    aligned_ = columns_[0] % 64 == 0;
    for (int i = 1; i < count_; ++i) {
      aligned_ = aligned_ && columns_[i] == columns_[0] + static_cast<uint32_t>(i);
    }
  }

  // Scores of vector v of row r.
  F32x16 Score(int r, int v, F32x16 raw) const {
    if (call_.bias == 0) return raw * Set(call_.scale);
    const F32x16 bias = Bias(r, v);
    return call_.bias == 1 ? (raw + bias) * Set(call_.scale) : raw * Set(call_.scale) + bias;
  }

  void Keep(int r, Mask16* keep) const {
    KeepOfRow(call_, rows_.batch, rows_.head, rows_.dropout_rows[r], columns_, aligned_, keep);
  }

  int count() const { return count_; }  // keys of the block

 private:
  F32x16 Bias(int r, int v) const {
    const int64_t row = rows_.tokens[r] * call_.kv_tokens, size = FusedSize(call_.type);
    const int left = count_ - 16 * v;
    if (left <= 0) return Zero();
    if (consecutive_) {
      return LoadElements(call_.type, rows_.bias + (row + tokens_[0] + 16 * v) * size, left);
    }
    alignas(64) float lanes[16] = {};
    for (int i = 0; i < 16 && i < left; ++i) {
      const char* from = rows_.bias + (row + tokens_[16 * v + i]) * size;
      lanes[i] = FirstLane(LoadElements(call_.type, from, 1));
    }
    return Load(lanes);
  }

  const FusedCall& call_;
  const FusedRows& rows_;
  const int32_t* tokens_;
  const uint32_t* columns_ = nullptr;
  int count_ = 0;
  bool consecutive_ = true;
  bool aligned_ = false;
};

}  // namespace plumbline::PLUMBLINE_ISA
