#include "plumbline/nn/workspace.h"

#include <utility>

namespace plumbline {
namespace {

int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

int64_t AllTokens(const WorkspaceSizes& sizes) {
  return sizes.all_tokens > 0 ? sizes.all_tokens : sizes.tokens;
}

ExpertExchange::Rows LargestExchange(const DecoderConfig& c, const DecoderShard& shard,
                                     const WorkspaceSizes& sizes) {
  if (shard.degrees.ep == 1) {
    return {.received = sizes.tokens, .pairs = sizes.tokens * c.experts.per_token};
  }
  return ExpertExchange::Largest(c, shard, sizes.tokens, AllTokens(sizes));
}

template <typename Matrix, typename Dense>
void ForEachExpertArray(ExpertScratch& e, const DecoderConfig& c, const DecoderShard& shard,
                        const WorkspaceSizes& sizes, Matrix&& matrix, Dense&& dense) {
  const ExpertExchange::Rows rows = LargestExchange(c, shard, sizes);
  matrix(e.logits, c.experts.count, sizes.tokens);
  matrix(e.weights, c.experts.per_token, sizes.tokens);
  matrix(e.in, c.hidden, rows.received);
  matrix(e.gate, shard.expert_intermediate.size(), rows.received);
  matrix(e.up, shard.expert_intermediate.size(), rows.received);
  dense(e.out, rows.pairs * c.hidden);
  if (shard.degrees.ep == 1) {
    if (shard.degrees.tp > 1) dense(e.nodes, sizes.sum_nodes * rows.pairs * c.hidden);
    return;
  }
  dense(e.send, rows.sent * c.hidden);
  dense(e.raw, rows.received * c.hidden);
  dense(e.received, rows.received * c.hidden);
  dense(e.give, rows.pairs * c.hidden);
  dense(e.returned, rows.home * c.experts.per_token * c.hidden);
  dense(e.combined, rows.home * c.hidden);
  dense(e.gathered, sizes.tokens * c.hidden);
}

// Every array in the order they lie in the buffer: matrix(view, width, rows), dense(span, floats).
template <typename Matrix, typename Dense>
void ForEachArray(DecoderWorkspace& w, const DecoderConfig& c, const DecoderShard& shard,
                  const WorkspaceSizes& sizes, Matrix&& matrix, Dense&& dense) {
  const int64_t query_width = shard.heads.size() * c.head_dim, kv_width = shard.kv_heads.size() * c.head_dim;
  matrix(w.hidden, c.hidden, sizes.tokens);
  matrix(w.normed, c.hidden, sizes.tokens);
  matrix(w.q, query_width, sizes.tokens);
  matrix(w.k, kv_width, sizes.tokens);
  matrix(w.v, kv_width, sizes.tokens);
  matrix(w.context, query_width, sizes.tokens);
  if (c.AnyDense()) {
    matrix(w.gate, shard.intermediate.size(), sizes.tokens);
    matrix(w.up, shard.intermediate.size(), sizes.tokens);
  }
  matrix(w.cos, c.head_dim / 2, sizes.tokens);
  matrix(w.sin, c.head_dim / 2, sizes.tokens);
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
    dense(w.embedded_send, AllTokens(sizes) * c.hidden);
    dense(w.embedded, AllTokens(sizes) * c.hidden);
  }
}

}  // namespace

int64_t DecoderWorkspace::Bytes(const DecoderConfig& config, const DecoderShard& shard,
                                const WorkspaceSizes& sizes) {
  DecoderWorkspace unused;
  int64_t floats = 0;
  ForEachArray(
      unused, config, shard, sizes,
      [&](MatrixView<float>&, int64_t width, int64_t rows) { floats += rows * Aligned(width); },
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
      [&](MatrixView<float>& matrix, int64_t width, int64_t rows) {
        matrix = {next, rows, width, Aligned(width)};
        next += rows * Aligned(width);
      },
      [&](std::span<float>& dense, int64_t size) {
        dense = {next, static_cast<size_t>(size)};
        next += Aligned(size);
      });
  if (config.experts.count > 0) {
    ExpertScratch& experts = workspace.experts;
    experts.ids.resize(sizes.tokens * config.experts.per_token);
    experts.groups.Reserve(shard.experts.size(), LargestExchange(config, shard, sizes).pairs);
    if (shard.degrees.ep > 1) experts.exchange.Reserve(config, shard, sizes.tokens, AllTokens(sizes));
  }
  workspace.embedded_ids.reserve(workspace.embedded.size() / config.hidden);
  return workspace;
}

}  // namespace plumbline
