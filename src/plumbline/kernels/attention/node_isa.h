// Nodes of the attention tree and their merge (attention_twin.h), for *_isa.cc files.
#pragma once

#include "plumbline/kernels/attention/attention_kernels.h"
#include "plumbline/kernels/attention/softmax_row.h"

namespace plumbline::PLUMBLINE_ISA {

struct Node {
  float* m;
  float* l;
  float* o;
};

static inline Node NodeAt(float* base, int64_t rows) {
  return {base, base + RoundUp16(rows), base + 2 * RoundUp16(rows)};
}

static void Merge(int64_t rows, int64_t head_dim, float* left_base, const float* right_base) {
  const Node left = NodeAt(left_base, rows);
  const Node right = NodeAt(const_cast<float*>(right_base), rows);
  const int64_t width = RoundUp16(head_dim);
  for (int64_t r0 = 0; r0 < rows; r0 += 16) {
    const F32x16 m1 = Load(left.m + r0), m2 = Load(right.m + r0);
    const F32x16 l1 = Load(left.l + r0), l2 = Load(right.l + r0);
    const F32x16 m = MaxNan(m1, m2);
    const Mask16 left_empty = m1 == MinusInfinity(), right_empty = m2 == MinusInfinity();
    alignas(64) float a1[16], a2[16];
    Store(a1, Exp(m1 - m));
    Store(a2, Exp(m2 - m));
    const F32x16 l = Fma(l2, Load(a2), l1 * Load(a1));
    Store(left.m + r0, m);
    Store(left.l + r0, Select(left_empty, l2, Select(right_empty, l1, l)));
    const uint32_t take_right = Bits(left_empty), keep_left = Bits(right_empty) & ~take_right;
    for (int i = 0; i < 16 && r0 + i < rows; ++i) {
      if (keep_left >> i & 1) continue;
      float* o1 = left.o + (r0 + i) * width;
      const float* o2 = right.o + (r0 + i) * width;
      if (take_right >> i & 1) {
        for (int64_t d = 0; d < width; d += 16) Store(o1 + d, Load(o2 + d));
      } else {
        const F32x16 w1 = Set(a1[i]), w2 = Set(a2[i]);
        for (int64_t d = 0; d < width; d += 16) Store(o1 + d, Fma(Load(o2 + d), w2, Load(o1 + d) * w1));
      }
    }
  }
}

// The node of blocks [first_block, end_block), a range that the tree reduces to one node; it comes to lie at
// `nodes`, which has room for as many as can wait for their right siblings and one more. block(b, node)
// computes one.
//
// The binary counter: node i of `nodes` is complete up to level[i] and waits for its right sibling. Blocks
// before the first are identities, which leave a node as it is, one level up.
template <class Block>
static const float* ReduceBlocks(int64_t rows, int64_t head_dim, int64_t first_block, int64_t end_block,
                                 float* nodes, const Block& block) {
  const int64_t node_floats = AttentionNodeFloats(rows, head_dim);
  int level[64];
  int depth = 0;
  for (int64_t b = first_block; b < end_block; ++b) {
    block(b, NodeAt(nodes + depth * node_floats, rows));
    level[depth] = 0;
    while (b >> level[depth] & 1) {
      const int up = level[depth] + 1;
      if (depth > 0 && level[depth - 1] == level[depth]) {
        --depth;
        Merge(rows, head_dim, nodes + depth * node_floats, nodes + (depth + 1) * node_floats);
      }
      level[depth] = up;
    }
    ++depth;
  }
  for (; depth > 1; --depth) {
    Merge(rows, head_dim, nodes + (depth - 2) * node_floats, nodes + (depth - 1) * node_floats);
  }
  return nodes;
}

}  // namespace plumbline::PLUMBLINE_ISA
