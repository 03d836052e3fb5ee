// Describe, choose, launch: how a matmul is cut into tiles and handed to threads. Pure functions of sizes;
// no choice changes a bit of the result.
#pragma once

#include <cstdint>

#include "plumbline/base/dtype.h"
#include "plumbline/base/isa.h"

namespace plumbline {

// Packed activations keep rows in groups; a group is interleaved so that the rows of a tile lie side by side.
// The m rows are spread evenly over ceil(m / largest) groups, the larger ones first.
struct RowGroups {
  int64_t groups = 0;
  int64_t smaller = 0;  // rows of the smaller ones
  int64_t larger = 0;   // groups that have one more

  struct Group {
    int64_t begin;
    int64_t rows;
  };
  Group At(int64_t group) const;
  int64_t IndexOf(int64_t row) const;
};
RowGroups MakeRowGroups(Isa isa, int64_t m);

// Only vdpbf16ps multiplies pairs as they are; elsewhere bf16 activations are kept as float32.
constexpr bool UsesPairs(Isa isa, Compute compute) {
  return isa == Isa::kAvx512Bf16 && compute == Compute::kBf16;
}

// What a weight's panels are to the tiles: read as they lie; bf16 pairs that float32 tiles widen; codes to
// decode into scratch; codes that tiles of few rows can decode themselves; codes multiplied as integers.
enum class PanelForm : uint8_t { kReady, kWidened, kDecoded, kRegisters, kQuads };

struct GemmShape {
  Isa isa = Isa::kAvx2;
  bool pairs = false;  // vdpbf16ps tiles
  PanelForm form = PanelForm::kReady;
  int64_t rows = 0;
  int64_t k = 0;
};

// One tile is at most `rows` x 16 * `vectors`; vectors is 1 (half a panel), 2, 4, 6 or 8.
struct TilePlan {
  int rows = 1;
  int vectors = 1;
  bool in_registers = false;  // codes are decoded by the tile itself
  bool in_scratch = false;    // a panel is decoded or widened into scratch before its tiles (integers: both,
                              // where there is a tile for either)

  int Panels() const { return vectors < 2 ? 1 : vectors / 2; }
};
TilePlan ChooseTile(const GemmShape& shape);

// Units of work of one fork-join: `unit_panels` panels by `row_block` rows.
struct WorkPlan {
  int64_t unit_panels = 1;
  int64_t row_block = 1;
  int64_t longest_run = 1;  // of units that a thread takes one after another (share_runs.h); 1: one by one
};
WorkPlan ChooseWork(const GemmShape& shape, const TilePlan& tile, int64_t panels, int threads);

}  // namespace plumbline
