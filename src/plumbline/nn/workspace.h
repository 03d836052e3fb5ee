// The activations of one step on one rank, allocated once for the largest step and reused: a step allocates
// nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/kernels/gemm/gemm.h"
#include "plumbline/nn/context_attention.h"
#include "plumbline/nn/decoder_config.h"
#include "plumbline/nn/expert_exchange.h"
#include "plumbline/nn/expert_groups.h"
#include "plumbline/nn/shard.h"
#include "plumbline/tensor/buffer.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

struct WorkspaceSizes {
  int64_t tokens = 0;      // of this rank's replica
  int64_t all_tokens = 0;  // of all replicas; 0: the same
  int64_t sum_nodes =
      0;  // of the dyadic tree that this rank brings to a row-parallel sum; 0 on one tensor-parallel rank
  bool exchanges = false;  // some row-parallel layer gathers its input first
};

// Of a sparse layer. An expert has at most `rows` rows: `tokens`, or what all replicas may send.
struct ExpertScratch {
  MatrixView<float> logits;    // [tokens, experts] the router's
  MatrixView<float> weights;   // [tokens, experts a token]
  MatrixView<float> in;        // [rows, hidden] those of one expert
  MatrixView<float> gate, up;  // [rows, the rank's columns of an expert]
  // Dense, of all pairs of a row and an expert of its: this rank's nodes of their sums [nodes, pairs, hidden]
  // where ranks share an expert, and what the experts give [pairs, hidden].
  std::span<float> nodes, out;
  std::vector<int32_t> ids;  // [tokens, experts a token]
  ExpertGroups groups;
  // Where experts are cut over ranks: rows as they leave and arrive, and as numbers; the experts' results as
  // they leave and arrive; their sums for this rank's home rows and for all rows of the replica.
  ExpertExchange exchange;
  std::span<float> send, raw, received, give, returned, combined, gathered;
};

// Float32 matrices of at most `sizes.tokens` rows; a step uses the first `tokens` rows of each. Heads and
// feed-forward columns are the rank's own. What is never in use together shares memory: `embedded`, what
// attention needs (normed until it is packed, q, k, v, context) and what the feed-forward needs (normed until
// it is packed, or all along beside experts; gate, up, experts).
class DecoderWorkspace {
 public:
  static Result<DecoderWorkspace> Allocate(const DecoderConfig& config, const DecoderShard& shard,
                                           const WorkspaceSizes& sizes);
  static int64_t Bytes(const DecoderConfig& config, const DecoderShard& shard, const WorkspaceSizes& sizes);

  int64_t max_tokens() const { return sizes_.tokens; }

  MatrixView<float> hidden;    // [tokens, hidden] the residual stream
  MatrixView<float> normed;    // [tokens, hidden]
  MatrixView<float> q;         // [tokens, heads * head_dim]
  MatrixView<float> k, v;      // [tokens, kv_heads * head_dim]
  MatrixView<float> context;   // [tokens, heads * head_dim] attention's output
  MatrixView<float> gate, up;  // [tokens, intermediate] where there are dense layers
  MatrixView<float> cos, sin;  // [tokens, head_dim / 2]
  // Of ranks that share layers, dense: this rank's nodes of a sum [nodes, tokens, hidden], the sum [tokens,
  // hidden].
  std::span<float> nodes, sum;
  // Where a row-parallel layer's input is gathered: what this rank sends, what comes, and that as rows
  // [tokens, heads * head_dim].
  std::span<float> exchange_send, exchange_received, exchanged;
  // Of ranks that share the embedding: rows this rank holds, and all rows [all_tokens, hidden].
  std::span<float> embedded_send, embedded;
  std::vector<int64_t> embedded_ids;  // whose rows this rank sends
  PackedActivations packed;
  ContextAttentionScratch context_attention;
  ExpertScratch experts;

 private:
  WorkspaceSizes sizes_;
  Buffer buffer_;
};

}  // namespace plumbline
