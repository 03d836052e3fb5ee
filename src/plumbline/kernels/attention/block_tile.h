// The rows of one register tile against one key block (attention_twin.h), for *_isa.cc files.
#pragma once

#include "plumbline/kernels/attention/ranged_dot.h"
#include "plumbline/kernels/attention/softmax_row.h"

namespace plumbline::PLUMBLINE_ISA {

template <bool kValue>
struct BoolConstant {
  static constexpr bool value = kValue;
};

template <class Element>
class BlockTile {
 public:
  // At most Element::kRows rows. Where `full`, all of them see all 64 keys; otherwise SetRange follows for
  // each.
  BlockTile(int count, bool full) : count_(count), full_(full) {
    lo_all_ = full ? 0 : 64;
    hi_all_ = full ? 63 : -1;
  }

  // Row r sees keys [first, last] of the block, which may begin before it and end behind it.
  void SetRange(int r, int64_t first, int64_t last) {
    lo_[r] = first < 0 ? 0 : first > 64 ? 64 : static_cast<int>(first);
    hi_[r] = last >= 64 ? 63 : last < 0 ? -1 : static_cast<int>(last);
    if (lo_[r] > hi_[r]) return;
    lo_all_ = lo_[r] < lo_all_ ? lo_[r] : lo_all_;
    hi_all_ = hi_[r] > hi_all_ ? hi_[r] : hi_all_;
  }

  // Every pointer is to the tile's first row. Raw scores of every vector that some row sees a key of.
  void Scores(const uint32_t* q, int64_t q_stride, const uint32_t* k_part, float* scores, int64_t steps,
              int64_t k_stride = 64, int64_t k_panel = 16) {
    if (lo_all_ > hi_all_) return;
    const int begin = lo_all_ / 16, end = hi_all_ / 16 + 1;
    Dot<Element>({q, q_stride, k_part + begin * k_panel, k_stride, scores + 16 * begin, 64, steps,
                  16 * (end - begin), false, k_panel},
                 count_);
  }

  // softmax_row(BoolConstant, r, s, lo, hi, m, l) is SoftmaxRow for row r. Leaves the rounded probabilities
  // where the scores were.
  template <class Row>
  void Softmax(float* scores, float* m, float* l, const Row& softmax_row) {
    for (int r = 0; r < count_; ++r) {
      float* row = scores + r * 64;
      if (full_) {
        softmax_row(BoolConstant<true>(), r, row, 0, 63, m + r, l + r);
      } else if (lo_[r] > hi_[r]) {
        m[r] = -__builtin_inff();
        l[r] = 0.0f;
      } else {
        softmax_row(BoolConstant<false>(), r, row, lo_[r], hi_[r], m + r, l + r);
      }
    }
  }

  // v_part [64 keys, lanes], by its strides.
  void Output(const float* probabilities, const uint32_t* v_part, int64_t v_stride, int64_t lanes, float* o,
              int64_t o_stride, int64_t v_panel = 16) {
    const BlockDot all = {reinterpret_cast<const uint32_t*>(probabilities),
                          64,
                          v_part,
                          v_stride,
                          o,
                          o_stride,
                          64 / Element::kPerStep,
                          lanes,
                          false,
                          v_panel};
    if (full_) {
      Dot<Element>(all, count_);
    } else {
      RangedDot<Element>(all, count_, lo_, hi_);
    }
  }

 private:
  const int count_;
  const bool full_;
  int lo_[Element::kRows], hi_[Element::kRows];  // keys of the block that a row may see
  int lo_all_, hi_all_;                          // their union
};

// Calls fn(first_row, count) for tiles of even size, at most kRows: the first ones have one row more.
template <int kRows, class Fn>
static inline void ForTiles(int rows, const Fn& fn) {
  const int tiles = (rows + kRows - 1) / kRows;
  for (int t = 0, r = 0; t < tiles; ++t) {
    const int count = rows / tiles + (t < rows % tiles ? 1 : 0);
    fn(r, count);
    r += count;
  }
}

// Dot for any number of rows, whole vectors of lanes. With panels, one at a time meets as many rows as stay
// in the first-level cache beside it.
template <class Element>
static inline void DotBlock(const BlockDot& d, int rows) {
  if constexpr (kPanels) {
    const int fit = static_cast<int>(4096 / (d.steps * Element::kPerStep));
    const int most = fit < Element::kRows ? Element::kRows : fit;
    for (int first = 0; first < rows; first += most) {
      const int count = rows - first < most ? rows - first : most;
      for (int64_t lane = 0; lane < d.lanes; lane += 16) {
        ForTiles<Element::kRows>(count, [&](int r, int tile_rows) {
          DotTileOf<Element>(tile_rows, 1, DotOfRow(d, first + r), lane, 16);
        });
      }
    }
  } else {
    ForTiles<Element::kRows>(rows, [&](int r, int count) { Dot<Element>(DotOfRow(d, r), count); });
  }
}

}  // namespace plumbline::PLUMBLINE_ISA
