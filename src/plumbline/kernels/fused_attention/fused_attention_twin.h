// The scalar definition of fused attention, forward, literal and slow. The kernels must match it in every bit
// but the payload of a NaN. Call under ScopedFloatEnv. The parts it shares with the decoder's attention are
// those of ../attention/attention_twin.h: chains, blocks, merges, tree and sink.
//
// Row (b, h, i) sees the keys of its segment, ranked by position (ties by token): rank r lies in block r
// / 64.
//
//   score   raw = chain over the dims; q and k are bf16 (or float32; float16 is widened to it)
//           x = raw * scale | (raw + bias) * scale | raw * scale + bias, each operation rounded
//   blocks  and tree as there, over the ranks from 0 to the last of the segment; a key dropout rules out
//   counts
//           in l and as p = +0 in o
//   sink    0 for kOffByOne, sink[h] for kLearnable
//   out[d]  = o[d] * (1 / l), with dropout then * (1 / (1 - probability)), rounded to dtype; +0 without
//   weight lse     = m + log(l) after the sink; without weight the sink, or -inf where there is none padding
//   rows: out +0, lse -inf
#pragma once

#include <algorithm>
#include <vector>

#include "plumbline/kernels/attention/attention_twin.h"
#include "plumbline/kernels/fused_attention/fused_attention.h"
#include "plumbline/kernels/fused_attention/fused_dropout.h"
#include "plumbline/kernels/fused_attention/fused_elements.h"

namespace plumbline {

// One call, element by element.
class FusedTwin {
 public:
  FusedTwin(const FusedAttentionShape& shape, const FusedAttentionOptions& options,
            const FusedAttentionInputs& inputs)
      : shape_(shape), options_(options), in_(inputs) {}

  const FusedAttentionShape& shape() const { return shape_; }
  const FusedAttentionOptions& options() const { return options_; }
  Compute compute() const { return FusedCompute(shape_.dtype); }
  DType result_dtype() const { return options_.float32_results ? DType::kF32 : shape_.dtype; }
  int64_t group() const { return shape_.heads / shape_.kv_heads; }
  bool dropout() const { return options_.dropout.probability > 0.0f; }

  std::vector<float> Q(int64_t b, int64_t h, int64_t i) const { return Row(in_.q, b, h, i, shape_.qk_dim); }
  std::vector<float> K(int64_t b, int64_t h, int64_t j) const {
    return Row(in_.k, b, h / group(), j, shape_.qk_dim);
  }
  std::vector<float> V(int64_t b, int64_t h, int64_t j) const {
    return Row(in_.v, b, h / group(), j, shape_.v_dim);
  }
  std::vector<float> Row(const FusedOperand<const void>& operand, int64_t b, int64_t h, int64_t t,
                         int64_t dim) const {
    const int64_t at = b * operand.batch_stride + t * operand.token_stride + h * operand.head_stride;
    std::vector<float> row(dim);
    for (int64_t d = 0; d < dim; ++d) row[d] = LoadFusedElement(shape_.dtype, operand.data, at + d);
    return row;
  }

  int64_t QSegment(int64_t b, int64_t i) const { return Segment(in_.q_ids, b * shape_.q_tokens + i); }
  int64_t KvSegment(int64_t b, int64_t j) const { return Segment(in_.kv_ids, b * shape_.kv_tokens + j); }
  int64_t QPosition(int64_t b, int64_t i) const { return Position(in_.q_ids, b * shape_.q_tokens + i, i); }
  int64_t KvPosition(int64_t b, int64_t j) const { return Position(in_.kv_ids, b * shape_.kv_tokens + j, j); }

  bool Allowed(int64_t b, int64_t i, int64_t j) const {
    if (QSegment(b, i) == 0 || QSegment(b, i) != KvSegment(b, j)) return false;
    const int64_t c = QPosition(b, i), p = KvPosition(b, j);
    return (!options_.causal || p <= c) && (options_.left < 0 || c - options_.left <= p) &&
           (options_.right < 0 || p <= c + options_.right);
  }

  // Tokens of a segment by rank.
  std::vector<int64_t> QRanks(int64_t b, int64_t segment) const {
    std::vector<int64_t> ranks;
    for (int64_t i = 0; i < shape_.q_tokens; ++i) {
      if (QSegment(b, i) == segment) ranks.push_back(i);
    }
    std::ranges::stable_sort(ranks, {}, [&](int64_t i) { return QPosition(b, i); });
    return ranks;
  }
  std::vector<int64_t> KvRanks(int64_t b, int64_t segment) const {
    std::vector<int64_t> ranks;
    for (int64_t j = 0; j < shape_.kv_tokens; ++j) {
      if (KvSegment(b, j) == segment) ranks.push_back(j);
    }
    std::ranges::stable_sort(ranks, {}, [&](int64_t j) { return KvPosition(b, j); });
    return ranks;
  }

  float Score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const float raw = AttentionTwinDot(compute(), shape_.qk_dim, Q(b, h, i).data(), K(b, h, j).data());
    if (options_.bias_type == FusedBias::kNone) return raw * options_.scale;
    const int64_t bb = options_.bias_batch > 1 ? b : 0, bh = options_.bias_heads > 1 ? h : 0;
    const float bias =
        LoadFusedElement(shape_.dtype, in_.bias,
                         ((bb * options_.bias_heads + bh) * shape_.q_tokens + i) * shape_.kv_tokens + j);
    if (options_.bias_type == FusedBias::kPreScale) return (raw + bias) * options_.scale;
    const float scaled = raw * options_.scale;
    return scaled + bias;
  }

  bool Keeps(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return !dropout() || FusedDropoutKeeps(options_.dropout, b, h, i, j);
  }

  // -inf where there is none.
  float Sink(int64_t h) const {
    if (options_.softmax == FusedSoftmax::kLearnable) return in_.sink[h];
    return options_.softmax == FusedSoftmax::kOffByOne ? 0.0f : -std::numeric_limits<float>::infinity();
  }

 private:
  static int64_t Segment(const FusedTokenIds& ids, int64_t at) {
    return ids.segments != nullptr ? ids.segments[at] : 1;
  }
  static int64_t Position(const FusedTokenIds& ids, int64_t at, int64_t token) {
    return ids.positions != nullptr ? ids.positions[at] : token;
  }

  const FusedAttentionShape& shape_;
  const FusedAttentionOptions& options_;
  const FusedAttentionInputs& in_;
};

// The root of row (b, h, i) before the sink.
inline AttentionTwinNode FusedTwinRoot(const FusedTwin& call, int64_t b, int64_t h, int64_t i) {
  const std::vector<int64_t> ranks = call.KvRanks(b, call.QSegment(b, i));
  std::vector<AttentionTwinNode> nodes(1);
  nodes[0].o.assign(call.shape().v_dim, 0.0f);
  for (size_t begin = 0; begin < ranks.size(); begin += kKeyBlock) {
    float s[kKeyBlock] = {};
    bool allowed[kKeyBlock] = {}, kept[kKeyBlock] = {};
    std::vector<std::vector<float>> values(kKeyBlock);
    const float* v[kKeyBlock] = {};
    for (size_t n = 0; n < kKeyBlock && begin + n < ranks.size(); ++n) {
      const int64_t j = ranks[begin + n];
      allowed[n] = call.Allowed(b, i, j);
      if (!allowed[n]) continue;
      s[n] = call.Score(b, h, i, j);
      kept[n] = call.Keeps(b, h, i, j);
      values[n] = call.V(b, h, j);
      v[n] = values[n].data();
    }
    if (begin > 0) nodes.emplace_back();
    nodes.back() = AttentionTwinWeigh(call.compute(), s, allowed, kept, v, call.shape().v_dim);
  }
  return AttentionTwinTree(std::move(nodes));
}

// One row: writes out, lse, and raises max_logit if not null.
inline void FusedTwinRow(const FusedTwin& call, const FusedAttentionOutputs& outputs, int64_t b, int64_t h,
                         int64_t i, float* max_logit) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const FusedAttentionShape& shape = call.shape();
  float& lse = outputs.lse[(b * shape.heads + h) * shape.q_tokens + i];
  const int64_t at =
      b * outputs.out.batch_stride + i * outputs.out.token_stride + h * outputs.out.head_stride;
  lse = -kInfinity;
  AttentionTwinNode root;
  if (call.QSegment(b, i) != 0) {
    root = FusedTwinRoot(call, b, h, i);
    lse = call.Sink(h);
  }
  if (root.m == -kInfinity) {
    for (int64_t d = 0; d < shape.v_dim; ++d) {
      StoreFusedElement(call.result_dtype(), outputs.out.data, at + d, 0.0f);
    }
    return;
  }
  if (max_logit != nullptr) *max_logit = AttentionTwinMax(*max_logit, root.m);
  AttentionTwinSink(call.Sink(h), &root);
  lse = root.m + LogF(root.l);
  const float inverse = 1.0f / root.l;
  for (int64_t d = 0; d < shape.v_dim; ++d) {
    float x = root.o[d] * inverse;
    if (call.dropout()) x = x * FusedKeepScale(call.options().dropout.probability);
    StoreFusedElement(call.result_dtype(), outputs.out.data, at + d, x);
  }
}

inline void FusedAttentionTwin(const FusedAttentionShape& shape, const FusedAttentionOptions& options,
                               const FusedAttentionInputs& inputs, const FusedAttentionOutputs& outputs) {
  const FusedTwin call(shape, options, inputs);
  for (int64_t n = 0; outputs.max_logit != nullptr && n < outputs.max_logit_groups * shape.heads; ++n) {
    outputs.max_logit[n] = -std::numeric_limits<float>::infinity();
  }
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t first = b / (shape.batch / outputs.max_logit_groups) * shape.heads;
    for (int64_t h = 0; h < shape.heads; ++h) {
      float* max_logit = outputs.max_logit != nullptr ? outputs.max_logit + first + h : nullptr;
      for (int64_t i = 0; i < shape.q_tokens; ++i) FusedTwinRow(call, outputs, b, h, i, max_logit);
    }
  }
}

}  // namespace plumbline
