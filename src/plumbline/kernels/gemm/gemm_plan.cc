#include "plumbline/kernels/gemm/gemm_plan.h"

#include <algorithm>

#include "plumbline/kernels/gemm/gemm_kernels.h"

namespace plumbline {
namespace {

constexpr int64_t kStreamingRows = 8;  // weights stream past once

// A unit of more rows takes long: where a thread loses its core in a long run of them, all others wait.
constexpr int64_t kLongestRun = 4;

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Accumulators of 16 columns that fit in registers beside the operands.
constexpr int64_t Accumulators(Isa isa) { return isa == Isa::kAvx2 ? 6 : 24; }
constexpr int64_t LargestGroup(Isa isa) { return isa == Isa::kAvx2 ? 6 : kMaxTileRows; }

// Decoding in registers repeats the decoding for every tile of rows; beyond this many rows a scratch panel
// read back from the second-level cache is cheaper.
constexpr int64_t FewRows(bool pairs) { return pairs ? kMaxQuantRows : kMaxColumnRows; }

// Widening pairs takes two operations for two multiply-adds a row: from this many rows on it is done once.
// Not with AVX2, where the ports that widen are not those that multiply (measured on Zen 3; the number for
// AVX-512 is reckoned).
constexpr int64_t kWidenRows = 64;

// Integers take a pass over a panel to decode, about what a row or two cost, and save a twelfth of every row.
constexpr int64_t kDecodeQuadsRows = 24;

// A row block's activations should stay in half of a 1 MiB second-level cache while panels stream past.
constexpr int64_t kRowBlockBytes = int64_t{512} << 10;

// And a panel fetched from memory or decoded should serve this many rows, whatever k.
constexpr int64_t kRowBlockRows = 128;

}  // namespace

RowGroups MakeRowGroups(Isa isa, int64_t m) {
  const int64_t groups = CeilDiv(m, LargestGroup(isa));
  return groups == 0 ? RowGroups{} : RowGroups{groups, m / groups, m % groups};
}

RowGroups::Group RowGroups::At(int64_t group) const {
  return {group * smaller + std::min(group, larger), smaller + (group < larger ? 1 : 0)};
}

int64_t RowGroups::IndexOf(int64_t row) const {
  const int64_t in_larger = larger * (smaller + 1);
  return row < in_larger ? row / (smaller + 1) : larger + (row - in_larger) / smaller;
}

// Rows of integers that a tile multiplies: as many as there are registers for sums.
constexpr int64_t QuadRows(Isa isa) { return isa == Isa::kAvx2 ? 6 : kMaxQuadRows; }

// Of packed activations, a row.
int64_t RowBytes(const GemmShape& shape) {
  if (shape.form == PanelForm::kQuads) return shape.k / 32 * kQuadWords * 4;
  return shape.k * (shape.pairs ? 2 : 4);
}

TilePlan ChooseTile(const GemmShape& shape) {
  if (shape.form == PanelForm::kQuads) {
    const int64_t tiles = CeilDiv(shape.rows, std::min(QuadRows(shape.isa), LargestGroup(shape.isa)));
    return {.rows = static_cast<int>(CeilDiv(shape.rows, tiles)),
            .vectors = 2,
            .in_registers = true,
            .in_scratch = shape.rows >= kDecodeQuadsRows};
  }
  if (shape.form == PanelForm::kRegisters && shape.rows <= FewRows(shape.pairs)) {
    return {.rows = static_cast<int>(shape.rows), .vectors = 2, .in_registers = true};
  }
  const int64_t accumulators = Accumulators(shape.isa);
  const int64_t group = LargestGroup(shape.isa);
  const int64_t rows = std::min(group, CeilDiv(shape.rows, CeilDiv(shape.rows, group)));
  const bool in_scratch =
      shape.form == PanelForm::kDecoded || shape.form == PanelForm::kRegisters ||
      (shape.form == PanelForm::kWidened && shape.isa != Isa::kAvx2 && shape.rows >= kWidenRows);
  // Scratch holds one panel.
  const int64_t widest = in_scratch ? 2 : kMaxTileVectors;
  int64_t vectors = 1;
  for (int64_t v = 2; v <= widest; v += 2) {
    if (v != 6 && v * rows <= accumulators) vectors = v;
  }
  return {.rows = static_cast<int>(rows), .vectors = static_cast<int>(vectors), .in_scratch = in_scratch};
}

WorkPlan ChooseWork(const GemmShape& shape, const TilePlan& tile, int64_t panels, int threads) {
  WorkPlan plan;
  plan.unit_panels = tile.Panels();
  // Panels that tiles read as they lie are taken in runs, since the next one is asked for meanwhile.
  if (shape.rows <= kStreamingRows) {
    plan.longest_run = INT64_MAX;
  } else if (shape.form <= PanelForm::kWidened) {
    plan.longest_run = kLongestRun;
  }
  // The last round of units should leave no thread idle for long.
  while (plan.unit_panels > 1 &&
         CeilDiv(CeilDiv(panels, plan.unit_panels), threads) * plan.unit_panels > CeilDiv(panels, threads)) {
    --plan.unit_panels;
  }
  const int64_t most = std::max(kRowBlockRows, kRowBlockBytes / RowBytes(shape));
  plan.row_block = CeilDiv(shape.rows, CeilDiv(shape.rows, most));
  return plan;
}

}  // namespace plumbline
