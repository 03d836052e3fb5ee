// The per-instruction-set part of attention: what one thread computes between two synchronisations. Plain
// enough to be included by *_isa.cc files.
//
// A *node* is the state (m, l, o) of `rows` query rows over a range of key blocks, as attention_twin.h
// defines it: float32 m [rows_padded], l [rows_padded], o [rows, dim_padded], where padded means rounded up
// to 16. Rows are ordered position-major: row r is query head kv_head * group + r % group at position
// first_position + r / group.
#pragma once

#include <cstdint>

namespace plumbline {

static inline int64_t RoundUp16(int64_t n) { return (n + 15) / 16 * 16; }
static inline int64_t AttentionNodeFloats(int64_t rows, int64_t head_dim) {
  return 2 * RoundUp16(rows) + rows * RoundUp16(head_dim);
}

// The query rows of consecutive positions of one sequence, inside one block of 64 positions, for the `group`
// query heads that share a KV head.
struct AttentionRows {
  int32_t rows;  // positions * group
  int32_t group;
  int64_t head_dim;
  int64_t first_position;
  int64_t window;  // 0: no limit
  float scale;
  float softcap;
  const float* q;  // row r at q + (r / group) * q_stride + (r % group) * head_dim
  int64_t q_stride;
  const void* const*
      pages;  // block b at pages[b / blocks_per_page] + block_offset + (b % blocks_per_page) * block_bytes
  int64_t blocks_per_page;
  int64_t block_offset;
  int64_t block_bytes;
};

// Keys and values of one sequence that fall in one block, for one KV head.
struct KvBlockTokens {
  void* block;
  int64_t head_dim;
  int32_t first;  // position in the block of the first token
  int32_t count;
  const float* k;  // token i at k + i * k_stride
  const float* v;
  int64_t k_stride;
  int64_t v_stride;
};

// Floats of scratch that `reduce` needs for `blocks` key blocks; 64-byte aligned.
static inline int64_t AttentionScratchFloats(int64_t rows, int64_t head_dim, int64_t blocks) {
  int64_t depth = 2;  // as many nodes as can wait for their right siblings, and one being computed
  while (blocks > 1) {
    blocks /= 2;
    ++depth;
  }
  const int64_t queries_and_scores = rows * (RoundUp16(head_dim) + 64);
  return queries_and_scores + depth * AttentionNodeFloats(rows, head_dim);
}

struct AttentionKernels {
  // The node of blocks [first_block, end_block) of `rows`, a range that the dyadic tree over all blocks of
  // these rows reduces to one node (all of them, or one aligned power of two). Lies in `scratch`.
  const float* (*reduce_bf16)(const AttentionRows& rows, int64_t first_block, int64_t end_block,
                              float* scratch);
  const float* (*reduce_f32)(const AttentionRows& rows, int64_t first_block, int64_t end_block,
                             float* scratch);
  // left = merge(left, right).
  void (*merge)(int64_t rows, int64_t head_dim, float* left, const float* right);
  // The rows' outputs from their root: row r at out + (r / group) * out_stride + (r % group) * head_dim.
  // `sinks`, one for each head of the group, or null.
  void (*finish)(const AttentionRows& rows, const float* root, const float* sinks, float* out,
                 int64_t out_stride);
  void (*store_bf16)(const KvBlockTokens& tokens,
                     uint32_t* scratch);  // scratch: RoundUp16(head_dim) * count words
  void (*store_f32)(const KvBlockTokens& tokens, uint32_t* scratch);
};

namespace isa_avx2 {
extern const AttentionKernels kAttentionKernels;
}
namespace isa_avx512 {
extern const AttentionKernels kAttentionKernels;
}
namespace isa_avx512_bf16 {
extern const AttentionKernels kAttentionKernels;
}

}  // namespace plumbline
