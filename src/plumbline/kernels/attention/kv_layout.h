// How keys and values lie in the pages of the KV cache. A page holds `page_size` consecutive tokens (a
// multiple of 64) of one sequence for every layer and KV head; attention works on blocks of 64 keys at
// absolute positions [64 b, 64 b + 64).
//
//   page   = [layers][kv_heads][page_size / 64] blocks
//   block  = K part, then V part
//   K bf16 = [ceil(head_dim / 2)][64 keys][2], even dimension in the high half    (lanes run over keys)
//   V bf16 = [32 key pairs][head_dim][2], even key in the high half               (lanes run over head_dim)
//   K f32  = [head_dim][64 keys]          V f32 = [64 keys][head_dim]
#pragma once

#include <cstdint>

#include "plumbline/base/dtype.h"

namespace plumbline {

inline constexpr int kKeyBlock = 64;

struct KvLayout {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t page_size = 64;
  Compute compute = Compute::kBf16;

  int64_t PartBytes() const {  // of the K part, and of the V part
    return compute == Compute::kBf16 ? (head_dim + 1) / 2 * kKeyBlock * 4 : head_dim * kKeyBlock * 4;
  }
  int64_t BlockBytes() const { return 2 * PartBytes(); }
  int64_t BlocksPerPage() const { return page_size / kKeyBlock; }
  int64_t PageBytes() const { return layers * kv_heads * BlocksPerPage() * BlockBytes(); }
  // Byte offset of the block of `position` (its page already chosen) inside the page.
  int64_t BlockOffset(int64_t layer, int64_t kv_head, int64_t position) const {
    return ((layer * kv_heads + kv_head) * BlocksPerPage() + position % page_size / kKeyBlock) * BlockBytes();
  }
};

}  // namespace plumbline
