#include "plumbline/kernels/fused_attention/fused_backward.h"

#include "plumbline/kernels/math/scalar_math.h"

namespace plumbline {

void FusedBackwardChunk::Pack(const FusedChunk& new_chunk, float* memory) {
  chunk = new_chunk;
  const auto take = [&](int64_t floats) {
    float* taken = memory;
    memory += floats;
    return taken;
  };
  const int64_t rows = 64 * chunk.rows() * work.shape.heads, keys = 64 * chunk.keys() * work.shape.kv_heads;
  q_ = take(rows * work.call.qk_width);
  dq_ = take(rows * work.call.qk_width);
  d_out_ = take(rows * work.call.v_width);
  q_lanes_ = work.kernels.row_lanes ? take(rows * work.call.qk_width) : q_;
  d_out_lanes_ = work.kernels.row_lanes ? take(rows * work.call.v_width) : d_out_;
  lse_ = take(rows);
  delta_ = take(rows);
  k_columns_ = take(keys * work.call.qk_steps);
  k_lanes_ = take(keys * work.call.qk_width);
  v_columns_ = take(keys * work.call.v_steps);
  const int64_t key_items = chunk.keys() * work.shape.kv_heads, row_items = chunk.rows() * work.shape.heads;
  work.context.pool.ParallelFor(key_items + row_items, [&](int64_t n, int) {
    if (n < key_items) {
      PackKeys(chunk.key_begin + n % chunk.keys(), n / chunk.keys());
    } else {
      n -= key_items;
      PackRows(chunk.row_begin + n % chunk.rows(), n / chunk.rows());
    }
  });
}

void FusedBackwardChunk::PackKeys(int64_t block, int64_t g) {
  const int64_t b = work.plan.key_blocks[block].batch, n = 64 * KeyIndex(block, g);
  const int32_t* tokens = &work.plan.key_tokens[64 * block];
  const FusedSource k = work.SourceOf(work.inputs.k, b, g, work.shape.qk_dim);
  const FusedSource v = work.SourceOf(work.inputs.v, b, g, work.shape.v_dim);
  work.kernels.pack_columns(k, tokens, k_columns_ + n * work.call.qk_steps, work.call.qk_steps);
  work.kernels.pack_lanes(k, tokens, k_lanes_ + n * work.call.qk_width, work.call.qk_width);
  work.kernels.pack_columns(v, tokens, v_columns_ + n * work.call.v_steps, work.call.v_steps);
}

void FusedBackwardChunk::PackRows(int64_t block, int64_t h) {
  const int64_t b = work.plan.row_blocks[block].batch, n = 64 * RowIndex(block, h);
  const int64_t v_width = work.call.v_width;
  const int32_t* tokens = &work.plan.row_tokens[64 * block];
  const FusedSource d_out = work.SourceOf(saved.d_out, b, h, work.shape.v_dim);
  const FusedSource q = work.SourceOf(work.inputs.q, b, h, work.shape.qk_dim);
  work.kernels.pack_rows(q, tokens, q_ + n * work.call.qk_width, work.call.qk_width);
  work.kernels.pack_rows(d_out, tokens, d_out_ + n * v_width, v_width);
  if (work.kernels.row_lanes) {
    work.kernels.pack_lanes(q, tokens, q_lanes_ + n * work.call.qk_width, work.call.qk_width);
    work.kernels.pack_lanes(d_out, tokens, d_out_lanes_ + n * v_width, v_width);
  }
  work.kernels.row_dots(d_out, work.SourceOf(saved.out, b, h, work.shape.v_dim), tokens, 64, delta_ + n);
  std::fill_n(dq_ + n * work.call.qk_width, 64 * work.call.qk_width, 0.0f);
  const float* lse = saved.lse + (b * work.shape.heads + h) * work.shape.q_tokens;
  for (int i = 0; i < 64; ++i) {
    lse_[n + i] = tokens[i] < 0 ? -std::numeric_limits<float>::infinity() : lse[tokens[i]];
  }
}

FusedRows FusedBackwardChunk::Rows(int64_t b, int64_t h, int64_t slot, int32_t count) const {
  FusedRows rows = work.RowsOf(b, h, slot, count);
  const int64_t n = h * 64 * chunk.rows() + slot - 64 * chunk.row_begin;
  rows.q = q_ + n * work.call.qk_width;
  rows.d_out = d_out_ + n * work.call.v_width;
  rows.q_lanes = q_lanes_ + n * work.call.qk_width;
  rows.d_out_lanes = d_out_lanes_ + n * work.call.v_width;
  rows.lse = lse_ + n;
  rows.delta = delta_ + n;
  return rows;
}

FusedKeys FusedBackwardChunk::Keys(int64_t key_begin, int64_t g) const {
  FusedKeys keys = work.KeysOf(key_begin);
  const int64_t n = 64 * KeyIndex(key_begin, g);
  keys.k_columns = k_columns_ + n * work.call.qk_steps;
  keys.k_lanes = k_lanes_ + n * work.call.qk_width;
  keys.v_columns = v_columns_ + n * work.call.v_steps;
  return keys;
}

void FusedSinkGrad(const FusedBackwardChunk& chunk, float* sums) {
  const FusedWork& work = chunk.work;
  const int64_t heads = work.shape.heads, batches = chunk.chunk.batch_end - chunk.chunk.batch_begin;
  work.context.pool.ParallelFor(batches * heads, [&](int64_t n, int) {
    const int64_t b = chunk.chunk.batch_begin + n / heads, h = n % heads;
    const int64_t slot_begin = 64 * work.plan.batch_row_blocks[b];
    const int64_t slots = 64 * work.plan.batch_row_blocks[b + 1] - slot_begin;
    std::vector<float> terms(RoundUp16(work.shape.q_tokens), 0.0f);
    const FusedRows rows = slots > 0 ? chunk.Rows(b, h, slot_begin, 0) : FusedRows{};
    for (int64_t i = 0; i < slots; ++i) {
      if (rows.tokens[i] < 0 || rows.lse[i] == -std::numeric_limits<float>::infinity()) continue;
      terms[rows.tokens[i]] = ExpF(work.SinkOf(h) - rows.lse[i]) * rows.delta[i];
    }
    float lane[16] = {};
    for (size_t i = 0; i < terms.size(); ++i) lane[i % 16] = lane[i % 16] + terms[i];
    for (int width = 8; width >= 1; width /= 2) {
      for (int i = 0; i < width; ++i) lane[i] = lane[2 * i] + lane[2 * i + 1];
    }
    sums[b * heads + h] = lane[0];
  });
}

}  // namespace plumbline
