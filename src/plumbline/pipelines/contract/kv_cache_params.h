// What the KV cache promises about its inputs (decoder contract, section 6.1).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/pipelines/contract/input_tensor.h"
#include "plumbline/pipelines/contract/input_tree.h"

namespace plumbline {

inline constexpr uint32_t kNullPage = 0;  // reserved: no sequence owns it, unreached slots name it

struct KvCacheParams {
  int64_t page_size = 64;       // tokens a page
  int64_t total_num_pages = 1;  // ids are below it; the null page is one of them
  DType dtype = DType::kU8;     // of the blocks
  std::vector<Dim> page_shape;  // of one page on one rank; names where ranks differ
  int64_t page_stride = -1;     // elements from a page to the next; -1: packed
  int64_t lookup_padding = 0;   // slots of a lookup row beyond those that the longest sequence needs
  // Of each replica, the ranks that hold a part of its pages.
  std::vector<std::vector<DeviceRef>> shards;

  int64_t PagesFor(int64_t tokens) const { return (tokens + page_size - 1) / page_size; }
  int64_t MaxNumPages(int64_t max_seq_len) const { return PagesFor(max_seq_len) + lookup_padding; }
};

// "replica0_batch_size": the dimension of what each sequence of a replica has one of.
std::string ReplicaBatchDim(int replica);

// The leaves of each replica, replica0/ first:
//   kv_blocks/SHARD    [total_num_pages, page_shape...] on the shard's rank, rank-local
//   cache_lengths      u32 [replicaR_batch_size] on the replica's first rank: tokens in the cache before the
//   step lookup_table       u32 [replicaR_batch_size, max_num_pages] there: page ids, unreached slots the
//   null page max_prompt_length  u32 [1] on the host: the largest active length, 0 of an empty replica
//   max_cache_length   u32 [1] on the host: the largest of cache_lengths, 0 of an empty replica
//   page_stride        i64 [1] on the host
InputTree<InputSpec> KvInputTypes(const KvCacheParams& params);

}  // namespace plumbline
