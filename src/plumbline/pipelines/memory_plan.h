// What a memory limit leaves for the KV cache.
//
//   limit = kBesideBytes + packed weights + the largest step + pages * page_bytes, rounded down to whole
//   pages
#pragma once

#include <cstdint>

#include "plumbline/nn/decoder_config.h"
#include "plumbline/pipelines/engine_options.h"

namespace plumbline {

// What a process holds beside weights, steps and KV pages: the program, the tokenizer, the requests and their
// results (EngineOptions::result_bytes). A bound on what is common, not on an input of any size.
inline constexpr int64_t kBesideBytes = int64_t{48} << 20;

struct MemoryPlan {
  int64_t limit = 0;
  int64_t weight_bytes = 0;
  int64_t step_bytes = 0;
  int64_t page_bytes = 0;  // keys and values, and with the prefix cache the log-probs kept beside them
  int64_t pages = 0;       // that fit; 0 where not even one does

  // What a request of `request_pages` needs in all.
  int64_t Needs(int64_t request_pages) const {
    return kBesideBytes + weight_bytes + step_bytes + request_pages * page_bytes;
  }
};

// Of the model and its ranks in this process.
struct MemoryParts {
  int64_t weight_bytes = 0;
  int64_t kv_page_bytes = 0;  // of one page on all ranks that hold a part of it
  int ranks = 1;
  int threads = 1;              // of each rank
  int exchanging_replicas = 0;  // whose rows travel to experts on other ranks
};

// For `options.memory_limit`, whatever the requests are that these options allow.
MemoryPlan PlanMemory(const DecoderConfig& config, const MemoryParts& parts, const EngineOptions& options);

}  // namespace plumbline
