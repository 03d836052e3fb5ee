#include "plumbline/kernels/attention/attention_kernels.h"
#include "plumbline/kernels/attention/block_tile.h"
#include "plumbline/kernels/attention/node_isa.h"
#include "plumbline/kernels/attention/store_kv_isa.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

constexpr int kKeys = 64;

// The rows from first_row on against key block block_index; `full` where they see all of it.
template <class Element>
BlockTile<Element> TileOf(const AttentionRows& rows, int64_t first_row, int count, int64_t block_index,
                          bool full) {
  BlockTile<Element> tile(count, full);
  for (int r = 0; r < count && !full; ++r) {
    const int64_t last = rows.first_position + (first_row + r) / rows.group - block_index * kKeys;
    tile.SetRange(r, rows.window > 0 ? last - rows.window + 1 : 0, last);
  }
  return tile;
}

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
  const int64_t steps = (rows.head_dim + Element::kPerStep - 1) / Element::kPerStep;
  const int64_t last_position = rows.first_position + (rows.rows - 1) / rows.group;
  const bool full = block_index * kKeys + kKeys - 1 <= rows.first_position &&
                    (rows.window == 0 || last_position - rows.window + 1 <= block_index * kKeys);
  ForTiles<Element::kRows>(rows.rows, [&](int r, int count) {
    BlockTile<Element> tile = TileOf<Element>(rows, r, count, block_index, full);
    tile.Scores(q + r * width, width, k_part, scores + r * kKeys, steps);
    tile.Softmax(scores + r * kKeys, node.m + r, node.l + r,
                 [&](auto is_full, int, float* s, int lo, int hi, float* m, float* l) {
                   SoftmaxRow<Element, is_full.value>(rows.scale, rows.softcap, s, lo, hi, m, l);
                 });
  });
  ForTiles<Element::kRows>(rows.rows, [&](int r, int count) {
    TileOf<Element>(rows, r, count, block_index, full)
        .Output(scores + r * kKeys, v_part, rows.head_dim, rows.head_dim, node.o + r * width, width);
  });
}

template <class Element>
const float* Reduce(const AttentionRows& rows, int64_t first_block, int64_t end_block, float* scratch) {
  const int64_t q_stride = RoundUp16(rows.head_dim);
  auto* q = reinterpret_cast<uint32_t*>(scratch);
  float* scores = scratch + rows.rows * q_stride;
  float* nodes = scores + rows.rows * kKeys;
  PackQueries<Element>(rows, q, q_stride);

  return ReduceBlocks(rows.rows, rows.head_dim, first_block, end_block, nodes,
                      [&](int64_t b, const Node& node) { ReduceBlock<Element>(rows, q, b, scores, node); });
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
