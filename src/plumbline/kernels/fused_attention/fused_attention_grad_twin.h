// The scalar definition of fused attention's gradients, literal and slow. The kernels must match it in every
// bit but the payload of a NaN. Call under ScopedFloatEnv. `round` is to bf16 for bf16 inputs, nothing else.
//
//   delta   over 16 lanes: lane t is the chain over d % 16 == t ascending of fma(d_out[d], out[d], lane),
//   with
//           zeros up to a multiple of 16; tree
//   pair    (i, j) allowed, lse of i not -inf, otherwise P = dS = +0:
//           P = exp(x - lse);  t = chain over the dims of d_out_i . v_j
//           with dropout: kept  Pd = P * keep, t = t * keep;  not kept  Pd = t = +0
//           dS = P * (t - delta)
//   tiles   query ranks [64 I, 64 I + 64) x key ranks [64 J, 64 J + 64) of one segment, active if they hold
//   an
//           allowed pair
//   dQ_i    chain over the keys of the active tiles of i's block, ascending from acc = +0, of
//           acc = fma(k_j[d], round(dS), acc); a tile with an odd number of keys ends with one more +0 * +0.
//           dQ = chain * scale
//   dV_j, dK_j of one head: the same over the query rows of the active tiles of j's block, with d_out_i,
//           round(Pd) and q_i, round(dS). The heads of the group by the dyadic tree (a + b). dK = root *
//           scale
//   d_bias  sum of dS over what it was broadcast along, batch rows outermost, by the tree; kPreScale: * scale
//   d_sink  per batch row 16 lanes: lane t adds exp(sink - lse) * delta over i % 16 == t ascending; tree;
//   then
//           batch rows by the tree; d_sink = -sum. Padding and rows of lse = -inf are left out.
#pragma once

#include <vector>

#include "plumbline/kernels/fused_attention/fused_attention_twin.h"

namespace plumbline {

// The dyadic tree of sums of vectors of equal length.
inline std::vector<float> FusedTwinTree(std::vector<std::vector<float>> nodes) {
  while (nodes.size() > 1) {
    std::vector<std::vector<float>> parents;
    for (size_t n = 0; n < nodes.size(); n += 2) {
      parents.push_back(std::move(nodes[n]));
      for (size_t d = 0; n + 1 < nodes.size() && d < parents.back().size(); ++d) {
        parents.back()[d] = parents.back()[d] + nodes[n + 1][d];
      }
    }
    nodes = std::move(parents);
  }
  return nodes.empty() ? std::vector<float>{0.0f} : nodes[0];
}

inline float FusedTwinLaneTree(float* lane) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int t = 0; t < width; ++t) lane[t] = lane[2 * t] + lane[2 * t + 1];
  }
  return lane[0];
}

class FusedGradTwin {
 public:
  FusedGradTwin(const FusedTwin& call, const FusedAttentionSaved& saved) : call_(call), saved_(saved) {
    const FusedAttentionShape& shape = call.shape();
    for (int64_t b = 0; b < shape.batch; ++b) {
      for (int64_t h = 0; h < shape.heads; ++h) {
        for (int64_t i = 0; i < shape.q_tokens; ++i) {
          for (int64_t j = 0; j < shape.kv_tokens; ++j) pairs_.push_back(MakePair(b, h, i, j));
        }
      }
    }
  }

  std::vector<float> DOut(int64_t b, int64_t h, int64_t i) const {
    return call_.Row(saved_.d_out, b, h, i, call_.shape().v_dim);
  }
  float Lse(int64_t b, int64_t h, int64_t i) const {
    return saved_.lse[(b * call_.shape().heads + h) * call_.shape().q_tokens + i];
  }
  float Delta(int64_t b, int64_t h, int64_t i) const {
    const std::vector<float> d_out = DOut(b, h, i), out = call_.Row(saved_.out, b, h, i, call_.shape().v_dim);
    float lane[16] = {};
    for (size_t d = 0; d < (out.size() + 15) / 16 * 16; ++d) {
      const bool inside = d < out.size();
      lane[d % 16] = std::fma(inside ? d_out[d] : 0.0f, inside ? out[d] : 0.0f, lane[d % 16]);
    }
    return FusedTwinLaneTree(lane);
  }

  struct Pair {
    float pd = 0.0f;
    float ds = 0.0f;
  };
  const Pair& PairOf(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const FusedAttentionShape& shape = call_.shape();
    return pairs_[((b * shape.heads + h) * shape.q_tokens + i) * shape.kv_tokens + j];
  }
  Pair MakePair(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const float lse = Lse(b, h, i);
    if (!call_.Allowed(b, i, j) || lse == -std::numeric_limits<float>::infinity()) return {};
    const float p = ExpF(call_.Score(b, h, i, j) - lse);
    float t =
        AttentionTwinDot(call_.compute(), call_.shape().v_dim, DOut(b, h, i).data(), call_.V(b, h, j).data());
    float pd = p;
    if (call_.dropout()) {
      const float keep = FusedKeepScale(call_.options().dropout.probability);
      const bool kept = call_.Keeps(b, h, i, j);
      pd = kept ? p * keep : 0.0f;
      t = kept ? t * keep : 0.0f;
    }
    const float difference = t - Delta(b, h, i);
    return {pd, p * difference};
  }

  bool Active(int64_t b, const std::vector<int64_t>& rows, size_t row_block, const std::vector<int64_t>& keys,
              size_t key_block) const {
    for (size_t r = 64 * row_block; r < std::min(rows.size(), 64 * row_block + 64); ++r) {
      for (size_t c = 64 * key_block; c < std::min(keys.size(), 64 * key_block + 64); ++c) {
        if (call_.Allowed(b, rows[r], keys[c])) return true;
      }
    }
    return false;
  }

  // The chains of `dim` sums over `count` ranks in blocks of 64: active(block), and add(rank, acc), which
  // does the fused multiply-adds of one rank.
  template <typename IsActive, typename Add>
  static std::vector<float> Chains(int64_t count, int64_t dim, IsActive&& active, Add&& add) {
    std::vector<float> acc(dim, 0.0f);
    for (int64_t block = 0; block < (count + 63) / 64; ++block) {
      if (!active(block)) continue;
      const int64_t end = std::min(count, 64 * block + 64);
      for (int64_t r = 64 * block; r < end; ++r) add(r, acc.data());
      for (float& x : acc) {
        if (end % 2 == 1) x = std::fma(0.0f, 0.0f, x);
      }
    }
    return acc;
  }

  std::vector<float> Dq(int64_t b, int64_t h, int64_t i) const {
    const int64_t dim = call_.shape().qk_dim, segment = call_.QSegment(b, i);
    if (segment == 0) return std::vector<float>(dim, 0.0f);
    const std::vector<int64_t> rows = call_.QRanks(b, segment), keys = call_.KvRanks(b, segment);
    const int64_t row_block = (std::ranges::find(rows, i) - rows.begin()) / 64;
    std::vector<float> dq = Chains(
        std::ssize(keys), dim, [&](int64_t block) { return Active(b, rows, row_block, keys, block); },
        [&](int64_t r, float* acc) {
          const float ds = AttentionTwinRound(call_.compute(), PairOf(b, h, i, keys[r]).ds);
          const std::vector<float> k = call_.K(b, h, keys[r]);
          for (int64_t d = 0; d < dim; ++d) acc[d] = std::fma(k[d], ds, acc[d]);
        });
    for (float& x : dq) x = x * call_.options().scale;
    return dq;
  }

  // dV first, then dK, of key j and KV head g.
  std::vector<float> DvDk(int64_t b, int64_t g, int64_t j) const {
    const int64_t v_dim = call_.shape().v_dim, dim = v_dim + call_.shape().qk_dim;
    const int64_t segment = call_.KvSegment(b, j);
    if (segment == 0) return std::vector<float>(dim, 0.0f);
    const std::vector<int64_t> rows = call_.QRanks(b, segment), keys = call_.KvRanks(b, segment);
    const int64_t key_block = (std::ranges::find(keys, j) - keys.begin()) / 64;
    std::vector<std::vector<float>> heads;
    for (int64_t h = g * call_.group(); h < (g + 1) * call_.group(); ++h) {
      heads.push_back(Chains(
          std::ssize(rows), dim, [&](int64_t block) { return Active(b, rows, block, keys, key_block); },
          [&](int64_t r, float* acc) {
            const Pair pair = PairOf(b, h, rows[r], j);
            const float pd = AttentionTwinRound(call_.compute(), pair.pd);
            const float ds = AttentionTwinRound(call_.compute(), pair.ds);
            const std::vector<float> d_out = DOut(b, h, rows[r]), q = call_.Q(b, h, rows[r]);
            for (int64_t d = 0; d < v_dim; ++d) acc[d] = std::fma(d_out[d], pd, acc[d]);
            for (int64_t d = v_dim; d < dim; ++d) acc[d] = std::fma(q[d - v_dim], ds, acc[d]);
          }));
    }
    std::vector<float> sum = FusedTwinTree(std::move(heads));
    for (int64_t d = v_dim; d < dim; ++d) sum[d] = sum[d] * call_.options().scale;
    return sum;
  }

  float DBias(int64_t bias_batch, int64_t bias_head, int64_t i, int64_t j) const {
    const FusedAttentionOptions& options = call_.options();
    std::vector<std::vector<float>> terms;
    for (int64_t b = 0; b < call_.shape().batch; ++b) {
      for (int64_t h = 0; h < call_.shape().heads; ++h) {
        if (options.bias_batch > 1 && b != bias_batch) continue;
        if (options.bias_heads > 1 && h != bias_head) continue;
        terms.push_back(std::vector<float>{PairOf(b, h, i, j).ds});
      }
    }
    const float sum = FusedTwinTree(std::move(terms))[0];
    return options.bias_type == FusedBias::kPreScale ? sum * options.scale : sum;
  }

  float DSink(int64_t h) const {
    std::vector<std::vector<float>> rows;
    for (int64_t b = 0; b < call_.shape().batch; ++b) {
      float lane[16] = {};
      for (int64_t i = 0; i < call_.shape().q_tokens; ++i) {
        if (call_.QSegment(b, i) == 0 || Lse(b, h, i) == -std::numeric_limits<float>::infinity()) continue;
        const float weight = ExpF(call_.Sink(h) - Lse(b, h, i));
        const float term = weight * Delta(b, h, i);
        lane[i % 16] = lane[i % 16] + term;
      }
      rows.push_back(std::vector<float>{FusedTwinLaneTree(lane)});
    }
    return -FusedTwinTree(std::move(rows))[0];
  }

 private:
  const FusedTwin& call_;
  const FusedAttentionSaved& saved_;
  std::vector<Pair> pairs_;  // [batch, heads, q_tokens, kv_tokens]
};

inline void FusedTwinStoreRow(const FusedTwin& call, const FusedOperand<void>& operand, int64_t b, int64_t h,
                              int64_t t, const float* row, int64_t dim) {
  const int64_t at = b * operand.batch_stride + t * operand.token_stride + h * operand.head_stride;
  for (int64_t d = 0; d < dim; ++d) StoreFusedElement(call.result_dtype(), operand.data, at + d, row[d]);
}

inline void FusedAttentionGradTwin(const FusedAttentionShape& shape, const FusedAttentionOptions& options,
                                   const FusedAttentionInputs& inputs, const FusedAttentionSaved& saved,
                                   const FusedAttentionGrads& grads) {
  const FusedTwin call(shape, options, inputs);
  const FusedGradTwin twin(call, saved);
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      for (int64_t i = 0; i < shape.q_tokens; ++i) {
        FusedTwinStoreRow(call, grads.dq, b, h, i, twin.Dq(b, h, i).data(), shape.qk_dim);
      }
    }
    for (int64_t g = 0; g < shape.kv_heads; ++g) {
      for (int64_t j = 0; j < shape.kv_tokens; ++j) {
        const std::vector<float> sums = twin.DvDk(b, g, j);
        FusedTwinStoreRow(call, grads.dv, b, g, j, sums.data(), shape.v_dim);
        FusedTwinStoreRow(call, grads.dk, b, g, j, sums.data() + shape.v_dim, shape.qk_dim);
      }
    }
  }
  const int64_t tile = shape.q_tokens * shape.kv_tokens;
  for (int64_t n = 0; grads.d_bias != nullptr && n < options.bias_batch * options.bias_heads * tile; ++n) {
    const float sum = twin.DBias(n / tile / options.bias_heads, n / tile % options.bias_heads,
                                 n % tile / shape.kv_tokens, n % shape.kv_tokens);
    StoreFusedElement(call.result_dtype(), grads.d_bias, n, sum);
  }
  for (int64_t h = 0; grads.d_sink != nullptr && h < shape.heads; ++h) grads.d_sink[h] = twin.DSink(h);
}

}  // namespace plumbline
