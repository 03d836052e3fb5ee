// The per-instruction-set part of fused attention: what one thread computes between two synchronisations.
// Plain enough to be included by *_isa.cc files.
//
// Every operand is packed to float32 first: a bf16 product is exact in float32, so that chains of fused
// multiply-adds over widened values are the contract's chains, and they run twice as fast as vdpbf16ps where
// that instruction has half the rate. bf16 alone shows in two places: P and dS are rounded to it, and a chain
// over an odd number of dims ends with one more +0 * +0.
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
  const float* q;         // [rows, qk_width]
  const float* d_out;     // [rows, v_width], backward only
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
  const float* k_columns;           // [blocks, qk_steps, 64]
  const float* v_rows;              // [blocks, 64, v_width]
  const float* k_rows;              // [blocks, 64, qk_width], backward only
  const float* v_columns;           // [blocks, v_steps, 64], backward only
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
  // Rows of `tokens` as float32, zeros up to `width` and for token -1.
  void (*pack_rows)(const FusedSource& source, const int32_t* tokens, int32_t count, float* to,
                    int64_t width);
  // Those of 64 tokens as columns [steps, 64].
  void (*pack_columns)(const FusedSource& source, const int32_t* tokens, float* to, int64_t steps);
  // row(token) = from[r] * scale, rounded; a token of -1 is skipped.
  void (*store_rows)(const FusedTarget& target, const int32_t* tokens, int32_t count, const float* from,
                     int64_t width, float scale);
  // dots[r] = a[r] . b[r] by 16 lanes and their tree.
  void (*row_dots)(int32_t count, int64_t width, const float* a, const float* b, float* dots);
  // The whole forward pass of `rows` over key blocks [first_block, end_block); sink -inf: none.
  void (*forward)(const FusedCall& call, const FusedRows& rows, const FusedKeys& keys, int64_t first_block,
                  int64_t end_block, float sink, float* scratch, FusedForwardResult* result);
  // Pd (null: not wanted) and dS [64, 64] of one tile, rounded to bf16 if `round`; rows padded to an even
  // number with zeros. `scratch`: 64 * 64 floats.
  void (*pairs)(const FusedCall& call, const FusedRows& rows, const FusedKeys& keys, int64_t block,
                bool round, float* pd, float* ds, float* scratch);
  // sums[r] (+)= sum over the steps of weights[r][step] * b[step] (of weights[step][r] if `columns`), weights
  // [64, 64], b [steps, width].
  void (*products)(bool columns, const float* weights, const float* b, int64_t width, int32_t rows,
                   int64_t steps, bool accumulate, float* sums);
  void (*add)(int64_t count, float* left, const float* right);  // left += right; count in sixteens
};

// Floats of scratch `forward` needs for `blocks` key blocks; 64-byte aligned.
static inline int64_t FusedForwardScratch(int64_t v_width, int64_t blocks) {
  int64_t depth = 2;
  for (; blocks > 1; blocks /= 2) ++depth;
  return kFusedBlock * kFusedBlock + depth * (2 * kFusedBlock + kFusedBlock * v_width);
}

namespace isa_avx2 {
extern const FusedKernels kFusedKernels;
}
namespace isa_avx512 {
extern const FusedKernels kFusedKernels;
}
namespace isa_avx512_bf16 {
extern const FusedKernels kFusedKernels;
}

}  // namespace plumbline
