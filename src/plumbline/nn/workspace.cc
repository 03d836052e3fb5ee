#include "plumbline/nn/workspace.h"

#include <algorithm>

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

// Places arrays one after the other from `data` on; without data it only counts. Going back to an earlier
// place lets arrays share memory that are never in use together.
class Placement {
 public:
  explicit Placement(float* data) : data_(data) {}

  void Matrix(MatrixView<float>& matrix, int64_t width, int64_t rows) {
    const int64_t stride = Aligned(width);
    if (data_ != nullptr) matrix = {data_ + here_, rows, width, stride};
    Advance(rows * stride);
  }
  void Dense(std::span<float>& dense, int64_t floats) {
    if (data_ != nullptr) dense = {data_ + here_, static_cast<size_t>(floats)};
    Advance(Aligned(floats));
  }

  int64_t here() const { return here_; }
  void GoTo(int64_t place) { here_ = place; }
  int64_t floats() const { return end_; }

 private:
  void Advance(int64_t floats) {
    here_ += floats;
    end_ = std::max(end_, here_);
  }

  float* data_;
  int64_t here_ = 0, end_ = 0;
};

void PlaceExperts(Placement& place, ExpertScratch& e, const DecoderConfig& c, const DecoderShard& shard,
                  const WorkspaceSizes& sizes) {
  const ExpertExchange::Rows rows = LargestExchange(c, shard, sizes);
  place.Matrix(e.logits, c.experts.count, sizes.tokens);
  place.Matrix(e.weights, c.experts.per_token, sizes.tokens);
  place.Matrix(e.in, c.hidden, rows.received);
  place.Matrix(e.gate, shard.expert_intermediate.size(), rows.received);
  place.Matrix(e.up, shard.expert_intermediate.size(), rows.received);
  place.Dense(e.out, rows.pairs * c.hidden);
  if (shard.degrees.ep == 1) {
    if (shard.degrees.tp > 1) place.Dense(e.nodes, sizes.sum_nodes * rows.pairs * c.hidden);
    return;
  }
  place.Dense(e.send, rows.sent * c.hidden);
  place.Dense(e.raw, rows.received * c.hidden);
  place.Dense(e.received, rows.received * c.hidden);
  place.Dense(e.give, rows.pairs * c.hidden);
  place.Dense(e.returned, rows.home * c.experts.per_token * c.hidden);
  place.Dense(e.combined, rows.home * c.hidden);
  place.Dense(e.gathered, sizes.tokens * c.hidden);
}

// Every array. What a layer's attention needs and what its feed-forward needs take the same memory, and so
// does what the embedding needs before the first. `normed` is read once, by the packing before the first
// matmul of each, but for experts: the results of later matmuls begin where it does.
void PlaceAll(Placement& place, DecoderWorkspace& w, const DecoderConfig& c, const DecoderShard& shard,
              const WorkspaceSizes& sizes) {
  const int64_t query_width = shard.heads.size() * c.head_dim, kv_width = shard.kv_heads.size() * c.head_dim;
  place.Matrix(w.hidden, c.hidden, sizes.tokens);
  place.Matrix(w.cos, c.head_dim / 2, sizes.tokens);
  place.Matrix(w.sin, c.head_dim / 2, sizes.tokens);
  if (shard.degrees.tp > 1) {
    place.Dense(w.nodes, sizes.sum_nodes * sizes.tokens * c.hidden);
    place.Dense(w.sum, sizes.tokens * c.hidden);
  }
  if (sizes.exchanges) {
    place.Dense(w.exchange_send, sizes.tokens * query_width);
    place.Dense(w.exchange_received, sizes.tokens * c.QueryWidth());
    place.Dense(w.exchanged, sizes.tokens * c.QueryWidth());
  }

  const int64_t begin = place.here();
  if (shard.FirstStage() && shard.degrees.StageRanks() > 1) {
    place.Dense(w.embedded_send, AllTokens(sizes) * c.hidden);
    place.Dense(w.embedded, AllTokens(sizes) * c.hidden);
  }

  place.GoTo(begin);
  place.Matrix(w.normed, c.hidden, sizes.tokens);
  const int64_t after_normed = place.here();
  if (c.experts.count > 0) PlaceExperts(place, w.experts, c, shard, sizes);

  place.GoTo(begin);
  place.Matrix(w.context, query_width, sizes.tokens);
  place.GoTo(std::max(place.here(), after_normed));
  place.Matrix(w.q, query_width, sizes.tokens);
  place.Matrix(w.k, kv_width, sizes.tokens);
  place.Matrix(w.v, kv_width, sizes.tokens);

  if (!c.AnyDense()) return;
  place.GoTo(begin);
  place.Matrix(w.gate, shard.intermediate.size(), sizes.tokens);
  place.Matrix(w.up, shard.intermediate.size(), sizes.tokens);
}

}  // namespace

int64_t DecoderWorkspace::Bytes(const DecoderConfig& config, const DecoderShard& shard,
                                const WorkspaceSizes& sizes) {
  DecoderWorkspace unused;
  Placement place(nullptr);
  PlaceAll(place, unused, config, shard, sizes);
  return place.floats() * static_cast<int64_t>(sizeof(float));
}

Result<DecoderWorkspace> DecoderWorkspace::Allocate(const DecoderConfig& config, const DecoderShard& shard,
                                                    const WorkspaceSizes& sizes) {
  DecoderWorkspace workspace;
  workspace.sizes_ = sizes;
  ASSIGN_OR_RETURN(workspace.buffer_, Buffer::Allocate(Bytes(config, shard, sizes)));
  Placement place(static_cast<float*>(workspace.buffer_.data()));
  PlaceAll(place, workspace, config, shard, sizes);
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
