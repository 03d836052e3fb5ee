// The per-instruction-set part of fused attention: what one thread computes between two synchronisations.
// Plain enough to be included by *_isa.cc files.
//
// Operands are packed first, in one of two ways that give the same bits (numerics contract, section 3):
//
//   floats  everything widened to float32, chains of multiply-adds. A bf16 product is exact in float32, so
//   bf16
//           shows in two places only: P and dS are rounded to it, and a chain over an odd number of dims ends
//           with one more +0 * +0.
//   pairs   bf16 alone, where the instruction set has vdpbf16ps: words of two elements, as in the KV cache.
//
// Which is faster depends on the machine: vdpbf16ps has twice the rate of multiply-adds on some and half on
// others. Arrays are laid out in words and have the same size either way; pairs leave half of some unused:
//
// Floats of instruction sets without 512-bit vectors have panels: [width / 16 panels, 64, 16] as lanes and [4
// panels, steps, 16] as columns.
//
//   rows     floats [64, width].  pairs [64, width / 2 words of two dims], then [32, width words of two rows]
//   lanes    floats [64, width].  pairs [32, width words of two keys]
//   columns  floats [steps, 64].  pairs [steps / 2, 64 words of two dims]
//   weights  floats [64, 64].     pairs [64, 32 words of two keys], then [32, 64 words of two rows]
#pragma once

#include <cstdint>

namespace plumbline {

inline constexpr int kFusedBlock = 64;

enum class FusedType : int32_t { kF32, kBf16, kF16 };

// What all tiles of one call share.
struct FusedCall {
  FusedType type;         // of inputs
  FusedType result_type;  // of out and gradients
  int64_t qk_dim, v_dim;
  int64_t qk_steps, v_steps;  // of a chain over dims: one more where a bf16 dim is odd
  int64_t qk_width, v_width;  // dims rounded up to 16: the stride of packed rows
  float scale;
  int32_t bias;       // 0 none, 1 before the scale, 2 after it
  int64_t kv_tokens;  // stride of the bias
  bool dropout;
  uint32_t threshold;
  uint32_t seed[2];
  float keep_scale;
};

// Up to 64 query rows of one segment and one head. Padded rows of all arrays are readable.
struct FusedRows {
  int32_t rows;
  const float* q;        // rows of qk_width
  const float* d_out;    // rows of v_width, backward only
  const float* q_lanes;  // what add_over_rows takes of q and d_out, backward only
  const float* d_out_lanes;
  const float* lse;       // [rows], backward only
  const float* delta;     // [rows], backward only
  const int32_t* lo;      // [rows] the keys a row may see are those of ranks [lo, hi)
  const int32_t* hi;      // [rows]
  const int32_t* tokens;  // [rows]
  const char* bias;       // of the head: element (token, key token) at token * kv_tokens + key token; or null
  const uint32_t* dropout_rows;  // [rows]
  uint32_t batch, head;          // for dropout
};

// The keys of that segment for the row's KV head, blocks of 64 ranks one after another.
struct FusedKeys {
  const int32_t* tokens;            // [blocks, 64], -1 behind the last key
  const uint32_t* dropout_columns;  // [blocks, 64]
  const float* k_columns;           // blocks of columns, qk_steps * 64 words each
  const float* v_lanes;             // blocks of lanes, 64 * v_width words each
  const float* k_lanes;             // blocks of lanes, 64 * qk_width words each, backward only
  const float* v_columns;           // blocks of columns, v_steps * 64 words each, backward only
};

// One operand's rows: token t of the head at data + t * stride, in elements of `type`.
struct FusedSource {
  FusedType type;
  const char* data;
  int64_t stride;
  int64_t dim;
};
struct FusedTarget {
  FusedType type;
  char* data;
  int64_t stride;
  int64_t dim;
};

struct FusedForwardResult {
  FusedTarget out;
  float* lse;       // by token
  float max_logit;  // of these rows
};

struct FusedKernels {
  // 64 tokens as rows, lanes or columns; token -1 is zeros.
  void (*pack_rows)(const FusedSource& source, const int32_t* tokens, float* to, int64_t width);
  void (*pack_lanes)(const FusedSource& source, const int32_t* tokens, float* to, int64_t width);
  void (*pack_columns)(const FusedSource& source, const int32_t* tokens, float* to, int64_t steps);
  // row(token) = from[r] * scale, rounded; a token of -1 is skipped.
  void (*store_rows)(const FusedTarget& target, const int32_t* tokens, int32_t count, const float* from,
                     int64_t width, float scale);
  // dots[r] = a . b of tokens[r], by 16 lanes and their tree; 0 for token -1.
  void (*row_dots)(const FusedSource& a, const FusedSource& b, const int32_t* tokens, int32_t count,
                   float* dots);
  // The whole forward pass of `rows` over key blocks [first_block, end_block); sink -inf: none.
  void (*forward)(const FusedCall& call, const FusedRows& rows, const FusedKeys& keys, int64_t first_block,
                  int64_t end_block, float sink, float* scratch, FusedForwardResult* result);
  // Pd (null: not wanted) and dS of one tile as weights, rounded to bf16 if `round`, which pairs always are;
  // rows padded to an even number with zeros. `scratch`: 2 * 64 * 64 floats.
  void (*pairs)(const FusedCall& call, const FusedRows& rows, const FusedKeys& keys, int64_t block,
                bool round, float* pd, float* ds, float* scratch);
  // sums[r] += sum over an even number of steps of weights[r, step] * lanes[step], sums [rows, width].
  void (*add_over_keys)(const float* weights, const float* lanes, int64_t width, int32_t rows, int64_t steps,
                        float* sums);
  // sums[key] += sum over an even number of query rows of weights[row, key] * rows[row], sums [keys, width];
  // `rows` as lanes where `row_lanes`.
  void (*add_over_rows)(const float* weights, const float* rows, int64_t width, int32_t keys, int64_t steps,
                        float* sums);
  void (*add)(int64_t count, float* left, const float* right);  // left += right; count in sixteens
  bool row_lanes;
};

// Floats of scratch `forward` needs for `blocks` key blocks; 64-byte aligned.
static inline int64_t FusedForwardScratch(int64_t v_width, int64_t blocks) {
  int64_t depth = 2;
  for (; blocks > 1; blocks /= 2) ++depth;
  return kFusedBlock * kFusedBlock + depth * (2 * kFusedBlock + kFusedBlock * v_width);
}

namespace isa_avx2 {
extern const FusedKernels kFusedKernels;       // floats
extern const FusedKernels* const kFusedPairs;  // null where there is no vdpbf16ps
}  // namespace isa_avx2
namespace isa_avx512 {
extern const FusedKernels kFusedKernels;       // floats
extern const FusedKernels* const kFusedPairs;  // null where there is no vdpbf16ps
}  // namespace isa_avx512
namespace isa_avx512_bf16 {
extern const FusedKernels kFusedKernels;       // floats
extern const FusedKernels* const kFusedPairs;  // null where there is no vdpbf16ps
}  // namespace isa_avx512_bf16

}  // namespace plumbline
