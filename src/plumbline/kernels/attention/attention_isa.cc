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

// The rows of one register tile against one key block.
template <class Element>
class BlockTile {
 public:
  BlockTile(const AttentionRows& rows, const uint32_t* q, int64_t q_stride, int64_t first_row, int count,
            float* scores, uint32_t* probabilities)
      : rows_(rows),
        q_(q + first_row * q_stride),
        q_stride_(q_stride),
        first_row_(first_row),
        count_(count),
        scores_(scores),
        probabilities_(probabilities) {}

  // `block`: the cache's block number `index`. Writes rows [first_row, first_row + count) of `node`.
  void Run(const uint32_t* block, int64_t index, bool full, const Node& node) {
    const uint32_t* v_part = block + rows_.block_bytes / 8;
    const int64_t width = RoundUp16(rows_.head_dim);
    const BlockDot output = {probabilities_,
                             kKeys,
                             v_part,
                             rows_.head_dim,
                             node.o + first_row_ * width,
                             width,
                             kKeys / Element::kPerStep,
                             rows_.head_dim,
                             false};
    float* m = node.m + first_row_;
    float* l = node.l + first_row_;
    if (full) {
      Scores(block, 0, kKeys);
      for (int r = 0; r < count_; ++r) {
        SoftmaxRow<Element, true>(rows_.scale, rows_.softcap, scores_ + r * kKeys, 0, kKeys - 1,
                                  probabilities_ + r * kKeys, m + r, l + r);
      }
      Dot<Element>(output, count_);
      return;
    }
    FindRanges(index);
    int lo = kKeys, hi = -1;
    for (int r = 0; r < count_; ++r) {
      m[r] = -__builtin_inff();
      l[r] = 0.0f;
      if (lo_[r] > hi_[r]) continue;
      lo = lo_[r] < lo ? lo_[r] : lo;
      hi = hi_[r] > hi ? hi_[r] : hi;
    }
    if (lo > hi) return;
    const int begin = lo / 16 * 16;
    Scores(block, begin, (hi / 16 + 1) * 16 - begin);
    for (int r = 0; r < count_; ++r) {
      if (lo_[r] > hi_[r]) continue;
      SoftmaxRow<Element, false>(rows_.scale, rows_.softcap, scores_ + r * kKeys, lo_[r], hi_[r],
                                 probabilities_ + r * kKeys, m + r, l + r);
    }
    RangedOutput(output);
  }

 private:
  void FindRanges(int64_t index) {
    for (int r = 0; r < count_; ++r) {
      const int64_t last = rows_.first_position + (first_row_ + r) / rows_.group - index * kKeys;
      const int64_t first = rows_.window > 0 ? last - rows_.window + 1 : 0;
      lo_[r] = first < 0 ? 0 : first > kKeys ? kKeys : static_cast<int>(first);
      hi_[r] = last < 0 ? -1 : last >= kKeys ? kKeys - 1 : static_cast<int>(last);
    }
  }

  void Scores(const uint32_t* k_part, int begin, int keys) {
    const int64_t steps = (rows_.head_dim + Element::kPerStep - 1) / Element::kPerStep;
    Dot<Element>({q_, q_stride_, k_part + begin, kKeys, scores_ + begin, kKeys, steps, keys, false}, count_);
  }

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
      if (lo_[r] > hi_[r]) continue;
      for (int64_t d = 0; d < all.lanes; d += 16) Store(all.c + r * all.c_stride + d, Zero());
      if (lo_[r] % 2 == 1) DotBoundaryPair<Element>(RowOf(all, r), lo_[r] / 2, false);
      Steps(RowOf(all, r), 1, (lo_[r] + 1) / 2 * kSteps, (together ? begin : (hi_[r] + 1) / 2) * kSteps);
    }
    if (together) Steps(all, count_, begin * kSteps, end * kSteps);
    for (int r = 0; r < count_; ++r) {
      if (lo_[r] > hi_[r]) continue;
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
  const uint32_t* q_;
  int64_t q_stride_;
  int64_t first_row_;
  int count_;
  float* scores_;
  uint32_t* probabilities_;
  int lo_[Element::kRows], hi_[Element::kRows];
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

template <class Element>
const float* Reduce(const AttentionRows& rows, int64_t first_block, int64_t end_block, float* scratch) {
  const int64_t q_stride = RoundUp16(rows.head_dim);
  auto* q = reinterpret_cast<uint32_t*>(scratch);
  float* scores = scratch + rows.rows * q_stride;
  auto* probabilities = reinterpret_cast<uint32_t*>(scores + 8 * kKeys);
  float* nodes = scores + 2 * 8 * kKeys;
  const int64_t node_floats = AttentionNodeFloats(rows.rows, rows.head_dim);
  PackQueries<Element>(rows, q, q_stride);

  const int64_t last_position = rows.first_position + (rows.rows - 1) / rows.group;
  const int64_t tiles = (rows.rows + Element::kRows - 1) / Element::kRows;
  // The binary counter: node i of `nodes` is complete up to level[i] and waits for its right sibling. Blocks
  // before the first are identities, which leave a node as it is, one level up.
  int level[64];
  int depth = 0;
  for (int64_t b = first_block; b < end_block; ++b) {
    const auto* block =
        reinterpret_cast<const uint32_t*>(static_cast<const char*>(rows.pages[b / rows.blocks_per_page]) +
                                          rows.block_offset + b % rows.blocks_per_page * rows.block_bytes);
    const bool full = b * kKeys + kKeys - 1 <= rows.first_position &&
                      (rows.window == 0 || last_position - rows.window + 1 <= b * kKeys);
    const Node node = NodeAt(nodes + depth * node_floats, rows.rows);
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = rows.rows * t / tiles, end = rows.rows * (t + 1) / tiles;
      BlockTile<Element>(rows, q, q_stride, begin, static_cast<int>(end - begin), scores, probabilities)
          .Run(block, b, full, node);
    }
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
