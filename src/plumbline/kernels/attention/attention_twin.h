// The scalar definition of attention (numerics contract, sections 2 and 4), literal and slow. The kernels
// must match it in every bit but the payload of a NaN. Call under ScopedFloatEnv.
//
// One row: a query at absolute position p, which sees the keys j in [first, p], first = max(0, p - window +
// 1) or 0 without a window.
//
//   score   raw = chain over d ascending from acc = +0 of acc = fma(q[d], k[j][d], acc), q and k rounded to
//   the
//           compute type; for bf16 an odd head_dim has one more element, q = k = +0.
//           s_j = raw * scale;  with a soft-cap: s_j = softcap * tanh(s_j / softcap), one division, one
//           product
//   block   b holds the row's keys j in [64 b, 64 b + 64).
//           m = max of s_j, NaN if any is NaN, +0 where it is a zero
//           p_j = exp(s_j - m)
//           l = tree over 16 lanes, lane t = sum over j % 16 == t of p_j, j ascending
//           o[d] = chain over j ascending from acc = +0 of acc = fma(v[j][d], p_j, acc), p and v rounded to
//           the compute type. j runs over the pairs {2 i, 2 i + 1} that hold a key of the row; the other key
//           of such a pair, if the row may not see it, counts as p = v = +0, whatever is stored there.
//   identity: a node with m = -inf, that is a block without keys or with all scores -inf. Its l and o are
//   void. merge   (left, right), where one is an identity: the other, unchanged. Otherwise
//           m = max(m1, m2), NaN if either is;  a1 = exp(m1 - m);  a2 = exp(m2 - m)
//           l = fma(l2, a2, l1 * a1);  o[d] = fma(o2[d], a2, o1[d] * a1)
//   tree    node(0, b) = block b, b = 0 .. p / 64;  node(L + 1, i) = merge(node(L, 2 i), node(L, 2 i + 1)),
//   or
//           node(L, 2 i) where there is no right child
//   sink    (unless -inf): m' = max(m, sink), NaN if either is;  a = exp(m - m');  l = l * a + exp(sink -
//   m');
//           o[d] = o[d] * a
//   out[d] = o[d] * (1 / l);  +0 where the root is an identity.   max_logit = m of the root, before the sink.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "plumbline/base/dtype.h"
#include "plumbline/base/float16.h"
#include "plumbline/kernels/attention/kv_layout.h"
#include "plumbline/kernels/math/scalar_math.h"

namespace plumbline {

struct AttentionTwinRow {
  Compute compute = Compute::kBf16;
  int64_t head_dim = 0;
  int64_t position = 0;
  int64_t window = 0;  // 0: no limit
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  const float* sink = nullptr;
  const float* q = nullptr;                  // [head_dim]
  std::vector<const float*> k = {}, v = {};  // [position + 1] rows of [head_dim], before rounding
};

struct AttentionTwinNode {
  float m = -std::numeric_limits<float>::infinity();
  float l = 0.0f;
  std::vector<float> o;
};

inline float AttentionTwinRound(Compute compute, float x) {
  return compute == Compute::kBf16 ? Bf16ToF32(F32ToBf16(x)) : x;
}

inline float AttentionTwinMax(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
  return (a > b ? a : b) + 0.0f;  // -0 + +0 = +0
}

// The chain over dim of q . k.
inline float AttentionTwinDot(Compute compute, int64_t dim, const float* q, const float* k) {
  float acc = 0.0f;
  for (int64_t d = 0; d < dim; ++d) {
    acc = std::fma(AttentionTwinRound(compute, q[d]), AttentionTwinRound(compute, k[d]), acc);
  }
  if (compute == Compute::kBf16 && dim % 2 == 1) acc = std::fma(0.0f, 0.0f, acc);
  return acc;
}

inline float AttentionTwinScore(const AttentionTwinRow& row, const float* k) {
  const float s = AttentionTwinDot(row.compute, row.head_dim, row.q, k) * row.scale;
  return row.softcap > 0.0f ? row.softcap * TanhF(s / row.softcap) : s;
}

// The node of one block: its scores s [64], which of its keys count, and their values v [64] of [v_dim], read
// where a key counts only. Where `kept` is not null, a key it rules out counts as p = +0 in o, not in l.
inline AttentionTwinNode AttentionTwinWeigh(Compute compute, const float* s, const bool* allowed,
                                            const bool* kept, const float* const* v, int64_t v_dim) {
  AttentionTwinNode node;
  node.o.assign(v_dim, 0.0f);
  for (int i = 0; i < kKeyBlock; ++i) {
    if (allowed[i]) node.m = AttentionTwinMax(node.m, s[i]);
  }
  if (node.m == -std::numeric_limits<float>::infinity()) return node;

  float p[kKeyBlock] = {}, lane[16] = {};
  for (int i = 0; i < kKeyBlock; ++i) {
    if (allowed[i]) p[i] = ExpF(s[i] - node.m);
    lane[i % 16] = lane[i % 16] + p[i];
    if (kept != nullptr && !kept[i]) p[i] = 0.0f;
  }
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = lane[2 * i] + lane[2 * i + 1];
  }
  node.l = lane[0];

  for (int i = 0; i < kKeyBlock; ++i) {
    if (!allowed[i] && !allowed[i ^ 1]) continue;
    for (int64_t d = 0; d < v_dim; ++d) {
      const float value = allowed[i] ? AttentionTwinRound(compute, v[i][d]) : 0.0f;
      node.o[d] = std::fma(value, AttentionTwinRound(compute, p[i]), node.o[d]);
    }
  }
  return node;
}

inline AttentionTwinNode AttentionTwinBlock(const AttentionTwinRow& row, int64_t block) {
  const int64_t window_begin = row.window > 0 ? row.position - row.window + 1 : 0;
  const int64_t begin = block * kKeyBlock;
  float s[kKeyBlock] = {};
  bool allowed[kKeyBlock];
  const float* v[kKeyBlock] = {};
  for (int i = 0; i < kKeyBlock; ++i) {
    allowed[i] = begin + i >= window_begin && begin + i <= row.position;
    if (!allowed[i]) continue;
    s[i] = AttentionTwinScore(row, row.k[begin + i]);
    v[i] = row.v[begin + i];
  }
  return AttentionTwinWeigh(row.compute, s, allowed, nullptr, v, row.head_dim);
}

inline AttentionTwinNode AttentionTwinMerge(const AttentionTwinNode& left, const AttentionTwinNode& right) {
  if (left.m == -std::numeric_limits<float>::infinity()) return right;
  if (right.m == -std::numeric_limits<float>::infinity()) return left;
  AttentionTwinNode node = left;
  node.m = AttentionTwinMax(left.m, right.m);
  const float a1 = ExpF(left.m - node.m);
  const float a2 = ExpF(right.m - node.m);
  node.l = std::fma(right.l, a2, left.l * a1);
  for (size_t d = 0; d < node.o.size(); ++d) node.o[d] = std::fma(right.o[d], a2, left.o[d] * a1);
  return node;
}

// The root of the tree over at least one block.
inline AttentionTwinNode AttentionTwinTree(std::vector<AttentionTwinNode> nodes) {
  while (nodes.size() > 1) {
    std::vector<AttentionTwinNode> parents;
    for (size_t i = 0; i < nodes.size(); i += 2) {
      parents.push_back(i + 1 < nodes.size() ? AttentionTwinMerge(nodes[i], nodes[i + 1]) : nodes[i]);
    }
    nodes = std::move(parents);
  }
  return nodes[0];
}

inline void AttentionTwinSink(float sink, AttentionTwinNode* root) {
  if (sink == -std::numeric_limits<float>::infinity()) return;
  const float m = AttentionTwinMax(root->m, sink);
  const float a = ExpF(root->m - m);
  const float weighted = root->l * a;
  root->m = m;
  root->l = weighted + ExpF(sink - m);
  for (float& o : root->o) o = o * a;
}

// out [head_dim]; max_logit, if not null, is raised to this row's maximum.
inline void AttentionTwin(const AttentionTwinRow& row, float* out, float* max_logit) {
  std::vector<AttentionTwinNode> nodes;
  for (int64_t b = 0; b <= row.position / kKeyBlock; ++b) nodes.push_back(AttentionTwinBlock(row, b));
  AttentionTwinNode root = AttentionTwinTree(std::move(nodes));
  if (max_logit != nullptr) *max_logit = AttentionTwinMax(*max_logit, root.m);
  const float infinity = std::numeric_limits<float>::infinity();
  if (root.m == -infinity) {
    for (int64_t d = 0; d < row.head_dim; ++d) out[d] = 0.0f;
    return;
  }
  if (row.sink != nullptr) AttentionTwinSink(*row.sink, &root);
  const float inverse = 1.0f / root.l;
  for (int64_t d = 0; d < row.head_dim; ++d) out[d] = root.o[d] * inverse;
}

}  // namespace plumbline
