#include "plumbline/kernels/attention/attention_kernels.h"
#include "plumbline/kernels/attention/block_dot.h"
#include "plumbline/kernels/attention/softmax_row.h"
#include "plumbline/kernels/attention/store_kv_isa.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

constexpr int kKeys = 64;

struct Node {
  float* m;
  float* l;
  float* o;
};

inline Node NodeAt(float* base, int64_t rows) {
  return {base, base + RoundUp16(rows), base + 2 * RoundUp16(rows)};
}

void Merge(int64_t rows, int64_t head_dim, float* left_base, const float* right_base) {
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

// The rows of one register tile, at most Element::kRows, against one key block.
template <class Element>
class BlockTile {
 public:
  BlockTile(const AttentionRows& rows, int64_t first_row, int count, int64_t block_index, bool full)
      : rows_(rows), count_(count), full_(full) {
    lo_all_ = full ? 0 : kKeys;
    hi_all_ = full ? kKeys - 1 : -1;
    for (int r = 0; r < count && !full; ++r) {
      const int64_t last = rows.first_position + (first_row + r) / rows.group - block_index * kKeys;
      const int64_t first = rows.window > 0 ? last - rows.window + 1 : 0;
      lo_[r] = first < 0 ? 0 : first > kKeys ? kKeys : static_cast<int>(first);
      hi_[r] = last >= kKeys ? kKeys - 1 : static_cast<int>(last);
      if (Empty(r)) continue;
      lo_all_ = lo_[r] < lo_all_ ? lo_[r] : lo_all_;
      hi_all_ = hi_[r] > hi_all_ ? hi_[r] : hi_all_;
    }
  }

  // Every pointer is to the tile's first row. Leaves the rounded probabilities where the scores were.
  void Softmax(const uint32_t* q, int64_t q_stride, const uint32_t* k_part, float* scores, float* m,
               float* l) {
    const int begin = lo_all_ / 16 * 16, end = (hi_all_ / 16 + 1) * 16;
    if (lo_all_ <= hi_all_) {
      const int64_t steps = (rows_.head_dim + Element::kPerStep - 1) / Element::kPerStep;
      Dot<Element>({q, q_stride, k_part + begin, kKeys, scores + begin, kKeys, steps, end - begin, false},
                   count_);
    }
    for (int r = 0; r < count_; ++r) {
      float* row = scores + r * kKeys;
      if (full_) {
        SoftmaxRow<Element, true>(rows_.scale, rows_.softcap, row, 0, kKeys - 1, m + r, l + r);
      } else if (Empty(r)) {
        m[r] = -__builtin_inff();
        l[r] = 0.0f;
      } else {
        SoftmaxRow<Element, false>(rows_.scale, rows_.softcap, row, lo_[r], hi_[r], m + r, l + r);
      }
    }
  }

  void Output(const float* probabilities, const uint32_t* v_part, float* o) {
    const int64_t width = RoundUp16(rows_.head_dim);
    const BlockDot all = {reinterpret_cast<const uint32_t*>(probabilities),
                          kKeys,
                          v_part,
                          rows_.head_dim,
                          o,
                          width,
                          kKeys / Element::kPerStep,
                          rows_.head_dim,
                          false};
    if (full_) {
      Dot<Element>(all, count_);
    } else {
      RangedOutput(all);
    }
  }

 private:
  bool Empty(int r) const { return lo_[r] > hi_[r]; }

  // Each row's chain covers its own pairs and no other. The steps that all rows take in whole run together;
  // what comes before and after them, row by row.
  void RangedOutput(const BlockDot& all) {
    constexpr int kSteps = 2 / Element::kPerStep;  // of a pair
    int begin = 0, end = kKeys / 2;
    for (int r = 0; r < count_; ++r) {
      const int first = (lo_[r] + 1) / 2, last = (hi_[r] + 1) / 2;
      begin = first > begin ? first : begin;
      end = last < end ? last : end;
    }
    const bool together = begin < end;
    for (int r = 0; r < count_; ++r) {
      if (Empty(r)) continue;
      for (int64_t d = 0; d < all.lanes; d += 16) Store(all.c + r * all.c_stride + d, Zero());
      if (lo_[r] % 2 == 1) DotBoundaryPair<Element>(RowOf(all, r), lo_[r] / 2, false);
      Steps(RowOf(all, r), 1, (lo_[r] + 1) / 2 * kSteps, (together ? begin : (hi_[r] + 1) / 2) * kSteps);
    }
    if (together) Steps(all, count_, begin * kSteps, end * kSteps);
    for (int r = 0; r < count_; ++r) {
      if (Empty(r)) continue;
      if (together) Steps(RowOf(all, r), 1, end * kSteps, (hi_[r] + 1) / 2 * kSteps);
      if (hi_[r] % 2 == 0) DotBoundaryPair<Element>(RowOf(all, r), hi_[r] / 2, true);
    }
  }

  static BlockDot RowOf(BlockDot d, int r) {
    d.a += r * d.a_stride;
    d.c += r * d.c_stride;
    return d;
  }

  static void Steps(BlockDot d, int rows, int64_t begin, int64_t end) {
    if (begin >= end) return;
    d.a += begin * Element::kWordsPerStep;
    d.b += begin * d.b_stride;
    d.steps = end - begin;
    d.accumulate = true;
    Dot<Element>(d, rows);
  }

  const AttentionRows& rows_;
  const int count_;
  const bool full_;
  int lo_[Element::kRows], hi_[Element::kRows];  // keys of the block that a row may see
  int lo_all_, hi_all_;                          // their union
};

template <class Element>
void PackQueries(const AttentionRows& rows, uint32_t* q, int64_t stride) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    const float* from = rows.q + r / rows.group * rows.q_stride + r % rows.group * rows.head_dim;
    for (int64_t d = 0; d < rows.head_dim; d += 16) {
      const int64_t left = rows.head_dim - d;
      Element::StoreRow(q + r * stride, d, LoadN(from + d, left < 16 ? static_cast<int>(left) : 16));
    }
  }
}

// The node of one key block. All scores come first, then all outputs, so that one half of the block at a time
// has to stay in the first-level cache.
template <class Element>
void ReduceBlock(const AttentionRows& rows, const uint32_t* q, int64_t block_index, float* scores,
                 const Node& node) {
  const char* page = static_cast<const char*>(rows.pages[block_index / rows.blocks_per_page]);
  const char* block = page + rows.block_offset + block_index % rows.blocks_per_page * rows.block_bytes;
  const auto* k_part = reinterpret_cast<const uint32_t*>(block);
  const auto* v_part = reinterpret_cast<const uint32_t*>(block + rows.block_bytes / 2);
  const int64_t width = RoundUp16(rows.head_dim);
  const int64_t last_position = rows.first_position + (rows.rows - 1) / rows.group;
  const bool full = block_index * kKeys + kKeys - 1 <= rows.first_position &&
                    (rows.window == 0 || last_position - rows.window + 1 <= block_index * kKeys);
  // Tiles of even size: the first `larger` ones have one row more than the others.
  const int tiles = (rows.rows + Element::kRows - 1) / Element::kRows;
  const int smallest = rows.rows / tiles, larger = rows.rows % tiles;
  const auto for_each_tile = [&](auto&& fn) {
    for (int t = 0, r = 0; t < tiles; ++t) {
      const int count = smallest + (t < larger ? 1 : 0);
      fn(BlockTile<Element>(rows, r, count, block_index, full), r);
      r += count;
    }
  };
  for_each_tile([&](BlockTile<Element>&& tile, int64_t r) {
    tile.Softmax(q + r * width, width, k_part, scores + r * kKeys, node.m + r, node.l + r);
  });
  for_each_tile([&](BlockTile<Element>&& tile, int64_t r) {
    tile.Output(scores + r * kKeys, v_part, node.o + r * width);
  });
}

template <class Element>
const float* Reduce(const AttentionRows& rows, int64_t first_block, int64_t end_block, float* scratch) {
  const int64_t q_stride = RoundUp16(rows.head_dim);
  auto* q = reinterpret_cast<uint32_t*>(scratch);
  float* scores = scratch + rows.rows * q_stride;
  float* nodes = scores + rows.rows * kKeys;
  const int64_t node_floats = AttentionNodeFloats(rows.rows, rows.head_dim);
  PackQueries<Element>(rows, q, q_stride);

  // The binary counter: node i of `nodes` is complete up to level[i] and waits for its right sibling. Blocks
  // before the first are identities, which leave a node as it is, one level up.
  int level[64];
  int depth = 0;
  for (int64_t b = first_block; b < end_block; ++b) {
    ReduceBlock<Element>(rows, q, b, scores, NodeAt(nodes + depth * node_floats, rows.rows));
    level[depth] = 0;
    while (b >> level[depth] & 1) {
      const int up = level[depth] + 1;
      if (depth > 0 && level[depth - 1] == level[depth]) {
        --depth;
        Merge(rows.rows, rows.head_dim, nodes + depth * node_floats, nodes + (depth + 1) * node_floats);
      }
      level[depth] = up;
    }
    ++depth;
  }
  for (; depth > 1; --depth) {
    Merge(rows.rows, rows.head_dim, nodes + (depth - 2) * node_floats, nodes + (depth - 1) * node_floats);
  }
  return nodes;
}

void Finish(const AttentionRows& rows, const float* root_base, const float* sinks, float* out,
            int64_t out_stride) {
  const Node root = NodeAt(const_cast<float*>(root_base), rows.rows);
  const int64_t width = RoundUp16(rows.head_dim);
  for (int64_t r0 = 0; r0 < rows.rows; r0 += 16) {
    alignas(64) float sink[16], a[16], inverse[16];
    for (int i = 0; i < 16; ++i)
      sink[i] = sinks != nullptr ? sinks[(r0 + i) % rows.group] : -__builtin_inff();
    const Mask16 none = Load(sink) == MinusInfinity();
    const F32x16 m = Load(root.m + r0), l = Load(root.l + r0);
    const F32x16 top = MaxNan(m, Load(sink));
    Store(a, Select(none, Set(1.0f), Exp(m - top)));
    Store(inverse, Set(1.0f) / Select(none, l, l * Load(a) + Exp(Load(sink) - top)));
    const uint32_t empty = Bits(m == MinusInfinity());
    for (int i = 0; i < 16 && r0 + i < rows.rows; ++i) {
      const int64_t r = r0 + i;
      float* to = out + r / rows.group * out_stride + r % rows.group * rows.head_dim;
      for (int64_t d = 0; d < rows.head_dim; d += 16) {
        const F32x16 x = Load(root.o + r * width + d) * Set(a[i]) * Set(inverse[i]);
        const int64_t left = rows.head_dim - d;
        StoreN(to + d, empty >> i & 1 ? Zero() : x, left < 16 ? static_cast<int>(left) : 16);
      }
    }
  }
}

}  // namespace

extern const AttentionKernels kAttentionKernels;
const AttentionKernels kAttentionKernels = {Reduce<Bf16Element>, Reduce<F32Element>, Merge, Finish,
                                            StoreKvBf16,         StoreKvF32};

}  // namespace plumbline::PLUMBLINE_ISA
