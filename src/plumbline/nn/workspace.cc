#include "plumbline/nn/workspace.h"

#include <utility>

namespace plumbline {
namespace {

int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

template <typename Matrix, typename Dense>
void ForEachExpertArray(ExpertScratch& e, const DecoderConfig& c, const DecoderShard& shard,
                        const WorkspaceSizes& sizes, Matrix&& matrix, Dense&& dense) {
  const int64_t pairs = sizes.tokens * c.experts.per_token;
  matrix(e.logits, c.experts.count);
  matrix(e.weights, c.experts.per_token);
  matrix(e.in, c.hidden);
  matrix(e.gate, shard.expert_intermediate.size());
  matrix(e.up, shard.expert_intermediate.size());
  dense(e.out, pairs * c.hidden);
  if (shard.degrees.tp > 1) dense(e.nodes, sizes.sum_nodes * pairs * c.hidden);
}

// Every array in the order they lie in the buffer: matrix(view, width), dense(span, floats).
template <typename Matrix, typename Dense>
void ForEachArray(DecoderWorkspace& w, const DecoderConfig& c, const DecoderShard& shard,
                  const WorkspaceSizes& sizes, Matrix&& matrix, Dense&& dense) {
  const int64_t query_width = shard.heads.size() * c.head_dim, kv_width = shard.kv_heads.size() * c.head_dim;
  matrix(w.hidden, c.hidden);
  matrix(w.normed, c.hidden);
  matrix(w.q, query_width);
  matrix(w.k, kv_width);
  matrix(w.v, kv_width);
  matrix(w.context, query_width);
  if (c.AnyDense()) {
    matrix(w.gate, shard.intermediate.size());
    matrix(w.up, shard.intermediate.size());
  }
  matrix(w.cos, c.head_dim / 2);
  matrix(w.sin, c.head_dim / 2);
  if (shard.degrees.tp > 1) {
    dense(w.nodes, sizes.sum_nodes * sizes.tokens * c.hidden);
    dense(w.sum, sizes.tokens * c.hidden);
  }
  if (c.experts.count > 0) ForEachExpertArray(w.experts, c, shard, sizes, matrix, dense);
  if (sizes.exchanges) {
    dense(w.exchange_send, sizes.tokens * query_width);
    dense(w.exchange_received, sizes.tokens * c.QueryWidth());
    dense(w.exchanged, sizes.tokens * c.QueryWidth());
  }
  if (shard.FirstStage() && shard.degrees.StageRanks() > 1) {
    const int64_t all = sizes.all_tokens > 0 ? sizes.all_tokens : sizes.tokens;
    dense(w.embedded_send, all * c.hidden);
    dense(w.embedded, all * c.hidden);
  }
}

}  // namespace

int64_t DecoderWorkspace::Bytes(const DecoderConfig& config, const DecoderShard& shard,
                                const WorkspaceSizes& sizes) {
  DecoderWorkspace unused;
  int64_t floats = 0;
  ForEachArray(
      unused, config, shard, sizes,
      [&](MatrixView<float>&, int64_t width) { floats += sizes.tokens * Aligned(width); },
      [&](std::span<float>&, int64_t size) { floats += Aligned(size); });
  return floats * static_cast<int64_t>(sizeof(float));
}

Result<DecoderWorkspace> DecoderWorkspace::Allocate(const DecoderConfig& config, const DecoderShard& shard,
                                                    const WorkspaceSizes& sizes) {
  DecoderWorkspace workspace;
  workspace.sizes_ = sizes;
  ASSIGN_OR_RETURN(workspace.buffer_, Buffer::Allocate(Bytes(config, shard, sizes)));
  float* next = static_cast<float*>(workspace.buffer_.data());
  ForEachArray(
      workspace, config, shard, sizes,
      [&](MatrixView<float>& matrix, int64_t width) {
        matrix = {next, sizes.tokens, width, Aligned(width)};
        next += sizes.tokens * Aligned(width);
      },
      [&](std::span<float>& dense, int64_t size) {
        dense = {next, static_cast<size_t>(size)};
        next += Aligned(size);
      });
  if (config.experts.count > 0) {
    const int64_t pairs = sizes.tokens * config.experts.per_token;
    workspace.experts.ids.resize(pairs);
    workspace.experts.groups.Reserve(config.experts.count, pairs);
  }
  return workspace;
}

}  // namespace plumbline
