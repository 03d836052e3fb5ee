// What the parts of the backward pass share: the packed operands of a chunk of batch rows.
#pragma once

#include "plumbline/kernels/attention/thread_scratch.h"
#include "plumbline/kernels/fused_attention/fused_work.h"

namespace plumbline {

// Sums of equal length combined by the dyadic tree as they come, all of them present: a binary counter.
class FusedSumTree {
 public:
  // `floats` of a sum, a multiple of 16; `memory` of Floats(terms, floats).
  FusedSumTree(const FusedKernels& kernels, int64_t floats, float* memory)
      : kernels_(kernels), floats_(floats), memory_(memory) {}

  static int64_t Floats(int64_t terms, int64_t floats) {
    int64_t depth = 2;
    for (; terms > 1; terms /= 2) ++depth;
    return depth * floats;
  }

  // Where the next term is to be written, zeroed.
  float* Next() {
    float* term = memory_ + depth_ * floats_;
    std::fill_n(term, floats_, 0.0f);
    return term;
  }
  void Push() {
    ++depth_;
    for (int64_t n = count_++; n & 1; n >>= 1) Fold();
  }
  float* Root() {
    while (depth_ > 1) Fold();
    return memory_;
  }

 private:
  void Fold() {
    --depth_;
    kernels_.add(floats_, memory_ + (depth_ - 1) * floats_, memory_ + depth_ * floats_);
  }

  const FusedKernels& kernels_;
  const int64_t floats_;
  float* const memory_;
  int64_t depth_ = 0;
  int64_t count_ = 0;
};

class FusedBackwardChunk {
 public:
  FusedBackwardChunk(const FusedWork& work, const FusedAttentionSaved& saved) : work(work), saved(saved) {}

  // Floats of a row block over all heads, and of a key block over all KV heads.
  int64_t RowBlockFloats() const { return work.shape.heads * HeadRowFloats(); }
  int64_t KeyBlockFloats() const { return work.shape.kv_heads * HeadKeyFloats(); }

  // Packs a chunk into `memory`, of its rows() * RowBlockFloats() + keys() * KeyBlockFloats().
  void Pack(const FusedChunk& new_chunk, float* memory);

  // Rows from a slot on; where they are packed as pairs, a slot that begins a block.
  FusedRows Rows(int64_t b, int64_t h, int64_t slot, int32_t count) const;
  FusedRows RowBlock(int64_t block, int64_t h) const {
    const FusedRowBlock& plan = work.plan.row_blocks[block];
    return Rows(plan.batch, h, 64 * block, plan.count);
  }
  FusedKeys Keys(int64_t key_begin, int64_t g) const;

  float* Dq(int64_t block, int64_t h) const { return dq_ + RowIndex(block, h) * 64 * work.call.qk_width; }

  const FusedWork& work;
  const FusedAttentionSaved& saved;
  FusedChunk chunk;

 private:
  int64_t HeadRowFloats() const {
    const int64_t widths = work.call.qk_width + work.call.v_width;
    return 64 * ((work.kernels.row_lanes ? 2 : 1) * widths + work.call.qk_width + 2);
  }
  int64_t HeadKeyFloats() const { return 64 * (work.call.qk_steps + work.call.qk_width + work.call.v_steps); }
  int64_t RowIndex(int64_t block, int64_t h) const { return h * chunk.rows() + block - chunk.row_begin; }
  int64_t KeyIndex(int64_t block, int64_t g) const { return g * chunk.keys() + block - chunk.key_begin; }
  void PackKeys(int64_t block, int64_t g);
  void PackRows(int64_t block, int64_t h);

  // [heads or KV heads, blocks, 64, width], and so on.
  float *q_ = nullptr, *d_out_ = nullptr, *dq_ = nullptr, *lse_ = nullptr, *delta_ = nullptr;
  float *q_lanes_ = nullptr, *d_out_lanes_ = nullptr;
  float *k_columns_ = nullptr, *k_lanes_ = nullptr, *v_columns_ = nullptr;
};

// d_bias of the batch rows of a chunk; of all batch rows where the bias has one.
void FusedBiasGrad(const FusedBackwardChunk& chunk, void* d_bias);

// Sums of the sink's gradient, not yet negated, of the batch rows of a chunk: sums [batch, heads].
void FusedSinkGrad(const FusedBackwardChunk& chunk, float* sums);

}  // namespace plumbline
