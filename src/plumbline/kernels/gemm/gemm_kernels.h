// What gemm.cc calls in the files compiled once per instruction set. Plain enough for *_isa.cc files.
#pragma once

#include <cstdint>

#include "plumbline/kernels/gemm/packed_format.h"

namespace plumbline {

// What a tile reads: activations and weights as bf16 pairs (kPairs), or activations as float32 and weights
// as float32 (kFloats) or as bf16 pairs widened on the way (kWidened).
enum class TileKind : uint8_t { kPairs, kFloats, kWidened };
inline constexpr int kTileKinds = 3;

inline constexpr int kMaxTileRows = 12;
inline constexpr int kMaxTileVectors = 8;  // of 16 columns
// Rows of a tile that decodes its weights in registers: panels in pair order, in column order.
inline constexpr int kMaxQuantRows = 8;
inline constexpr int kMaxColumnRows = 2;
inline constexpr int kMaxQuadRows = 8;

// Words a row of a group of 32 activations that are integers: eight quads of int8, the scale, the scale times
// the integers' sum, and the sums of the first and of the second sixteen as int32.
inline constexpr int kQuadWords = 12;

// One tile: y[r, c] for the tile's rows and 16 * vectors columns, all of k.
struct TileArgs {
  const void* x;     // the tile's first row: [steps][x_stride] words, steps of a pair or of one float
  int64_t x_stride;  // words from one step to the next (of integers: kQuadWords each): the rows of the group
  const void* w;     // the first panel, or its upper half
  const void* decoded;   // the panel by QuadKernels::decode, for the tiles that read it
  int64_t panel_stride;  // bytes to the next panel
  int64_t k;             // rounded up to even
  int64_t leaf;
  float* y;
  int64_t y_stride;
  int64_t columns;    // columns stored, at most 16 * vectors
  const float* bias;  // [columns] or null
  bool accumulate;
  // Of TileKernels, kPairs and kWidened: memory to ask for on the way, kAheadBytes every `ahead_every` steps;
  // or null.
  const void* ahead;
  int64_t ahead_every;
};
inline constexpr int64_t kAheadBytes = 128;

using TileFn = void (*)(const TileArgs& args);

// What a panel is decoded into: [k/2][32] bf16 pairs, or [k][32] float32 (k rounded up to even) whose values
// are rounded to bf16, the same of a weight that allows more (Decoding), or as they are.
enum class DecodeTarget : uint8_t { kPairs, kRounded, kRoundedPlain, kRoundedExact, kFloats };
inline constexpr int kDecodeTargets = 5;

// Decodes one panel of k (a multiple of the block).
using DecodeFn = void (*)(const void* panel, int64_t k, void* out);

// x [rows][k] float32, rows `stride` apart -> the layout of one group of rows (gemm.cc).
using PackRowsFn = void (*)(const float* x, int64_t stride, int64_t rows, int64_t k, uint32_t* out);

struct TileKernels {
  TileFn tile[kTileKinds][kMaxTileRows]
             [kMaxTileVectors + 1];  // [kind][rows - 1][vectors]; null: no such tile
};

struct QuantKernels {
  // Null for float32, and for bf16 pairs into pairs; into pairs only where there are tiles that read them.
  DecodeFn decode[kDecodeTargets][kPackedFormats][kPanelOrders];
  // [format][rows - 1], 2 vectors, weights decoded in registers; or null.
  TileFn pairs[kPackedFormats][kMaxQuantRows];     // panels in pair order, kPairs
  TileFn rounded[kPackedFormats][kMaxColumnRows];  // column order, plain weights rounded to bf16, x float32
  TileFn exact[kPackedFormats][kMaxColumnRows];    // the same of exact weights
  TileFn floats[kPackedFormats][kMaxColumnRows];   // column order, weights as they are, x float32
};

// Products of integers (Compute::kInt8): panels in quad order, 2 vectors; null: no such tile.
struct QuadKernels {
  TileFn tile[kPackedFormats][kMaxQuadRows];     // [format][rows - 1]
  DecodeFn decode[kPackedFormats];               // null: such panels are ready as they lie
  TileFn decoded[kPackedFormats][kMaxQuadRows];  // of panels decoded; null: `tile` will do
};

struct ActivationKernels {
  PackRowsFn to_pairs;
  PackRowsFn to_rounded;
  PackRowsFn to_floats;
  PackRowsFn to_quads;
};

#define PLUMBLINE_DECLARE_GEMM_KERNELS(isa)    \
  namespace isa {                              \
  extern const TileKernels kTileKernels;       \
  extern const QuantKernels kQuantKernels;     \
  extern const QuadKernels kQuadKernels;       \
  extern const ActivationKernels kActivations; \
  }
PLUMBLINE_DECLARE_GEMM_KERNELS(isa_avx2)
PLUMBLINE_DECLARE_GEMM_KERNELS(isa_avx512)
PLUMBLINE_DECLARE_GEMM_KERNELS(isa_avx512_bf16)
#undef PLUMBLINE_DECLARE_GEMM_KERNELS

}  // namespace plumbline
