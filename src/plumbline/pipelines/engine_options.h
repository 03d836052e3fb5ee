// How requests are run; no result depends on it but hidden states, which are asked for here.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "plumbline/nn/distributed_logits_postprocess.h"

namespace plumbline {

struct EngineOptions {
  int64_t chunk_size = 512;  // prompt rows a step; 0: the longest prompt whole
  int64_t batch_size = 16;   // sequences in flight on each replica
  int64_t page_size = 64;    // tokens a KV page; a multiple of 64
  int64_t kv_bytes = 0;      // the KV cache's limit; 0: what the machine has free
  // What the process may hold in all (memory_plan.h), instead of kv_bytes; 0: no limit.
  int64_t memory_limit = 0;
  // What results may take, of requests in flight and of those that wait for earlier ones to be handed back:
  // no request begins that would pass it while another is in flight.
  int64_t result_bytes = int64_t{16} << 20;
  bool generates = true;     // whether requests may generate: a step then holds logits
  int64_t draft_rows = 256;  // guesses a step checks at the most, those of all sequences together
  bool prefix_cache = true;  // requests that begin with the same tokens share pages (prefix_reuse.h)
  int64_t prefix_cache_bytes = int64_t{256} << 20;  // pages kept although no sequence uses them
  ReturnHiddenStates hidden_states = ReturnHiddenStates::kNone;
  std::vector<int32_t> layers;                   // kSelectedLayers: ascending
  const std::atomic<bool>* cancelled = nullptr;  // looked at between steps
};

}  // namespace plumbline
