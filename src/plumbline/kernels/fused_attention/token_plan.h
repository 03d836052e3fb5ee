// Who meets whom: the tokens of a call ranked inside their segments, cut into blocks of 64, and for every
// query row the interval of key ranks it may see. A pure function of segments, positions and the mask rule.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/kernels/fused_attention/fused_attention.h"

namespace plumbline {

// Up to 64 consecutive ranks of one segment; their slots are [64 * index, 64 * index + count) of the side's
// arrays.
struct FusedKeyBlock {
  int32_t batch = 0;
  int32_t count = 0;
  int64_t segment_begin = 0;  // the segment's first key block
  int64_t row_begin = 0;      // query blocks of the same segment: [row_begin, row_end)
  int64_t row_end = 0;
};

struct FusedRowBlock {
  int32_t batch = 0;
  int32_t count = 0;
  int64_t key_begin = 0;  // the segment's key blocks: [key_begin, key_end)
  int64_t key_end = 0;
  int64_t first_block = 0;  // those some row sees lie in [first_block, end_block), counted from key_begin
  int64_t end_block = 0;
};

struct FusedTokenPlan {
  std::vector<FusedRowBlock> row_blocks;
  std::vector<FusedKeyBlock> key_blocks;
  std::vector<int64_t> batch_row_blocks;  // [batch + 1] row blocks of batch row b: from [b] to [b + 1]
  std::vector<int64_t> batch_key_blocks;  // [batch + 1]
  std::vector<int32_t> row_tokens;        // [row_blocks * 64], -1: none
  std::vector<int32_t> lo, hi;            // [row_blocks * 64] key ranks [lo, hi)
  std::vector<int32_t> key_tokens;        // [key_blocks * 64], -1: none
  std::vector<std::vector<int32_t>> row_padding, key_padding;  // [batch] tokens of segment 0

  // Whether a row of `rows` may see a key of the segment's block `block`.
  bool Active(int64_t row_block, int64_t block) const;
};

FusedTokenPlan MakeFusedTokenPlan(const FusedAttentionShape& shape, const FusedAttentionOptions& options,
                                  const FusedTokenIds& q_ids, const FusedTokenIds& kv_ids);

}  // namespace plumbline
