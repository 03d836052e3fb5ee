// Products over a range of a block's keys that differs from row to row, for *_isa.cc files: the output of a
// block (attention_twin.h), whose chain runs over the pairs that hold a key of the row.
#pragma once

#include "plumbline/kernels/attention/block_dot.h"

namespace plumbline::PLUMBLINE_ISA {

static inline BlockDot DotOfRow(BlockDot d, int r) {
  d.a += r * d.a_stride;
  d.c += r * d.c_stride;
  return d;
}

template <class Element>
static void DotSteps(BlockDot d, int rows, int64_t begin, int64_t end) {
  if (begin >= end) return;
  d.a += begin * Element::kWordsPerStep;
  d.b += begin * d.b_stride;
  d.steps = end - begin;
  d.accumulate = true;
  Dot<Element>(d, rows);
}

// Row r of `count`, at most Element::kRows, over its keys [lo[r], hi[r]]; a row without any is left alone.
// Each row's chain covers its own pairs and no other. The steps that all rows take in whole run together;
// what comes before and after them, row by row.
template <class Element>
static void RangedDot(const BlockDot& all, int count, const int* lo, const int* hi) {
  constexpr int kSteps = 2 / Element::kPerStep;  // of a pair
  int begin = 0, end = 32;
  for (int r = 0; r < count; ++r) {
    const int first = (lo[r] + 1) / 2, last = (hi[r] + 1) / 2;
    begin = first > begin ? first : begin;
    end = last < end ? last : end;
  }
  const bool together = begin < end;
  for (int r = 0; r < count; ++r) {
    if (lo[r] > hi[r]) continue;
    for (int64_t d = 0; d < all.lanes; d += 16) Store(all.c + r * all.c_stride + d, Zero());
    if (lo[r] % 2 == 1) DotBoundaryPair<Element>(DotOfRow(all, r), lo[r] / 2, false);
    DotSteps<Element>(DotOfRow(all, r), 1, (lo[r] + 1) / 2 * kSteps,
                      (together ? begin : (hi[r] + 1) / 2) * kSteps);
  }
  if (together) DotSteps<Element>(all, count, begin * kSteps, end * kSteps);
  for (int r = 0; r < count; ++r) {
    if (lo[r] > hi[r]) continue;
    if (together) DotSteps<Element>(DotOfRow(all, r), 1, end * kSteps, (hi[r] + 1) / 2 * kSteps);
    if (hi[r] % 2 == 0) DotBoundaryPair<Element>(DotOfRow(all, r), hi[r] / 2, true);
  }
}

}  // namespace plumbline::PLUMBLINE_ISA
