// What the executors of one engine are made for.
#pragma once

#include <cstdint>

#include "plumbline/nn/distributed_logits_postprocess.h"

namespace plumbline {

// The same on every rank. Plain: travels as bytes.
struct ExecutorOptions {
  int64_t page_size = 64;
  int64_t max_rows = 0;       // of a replica and step
  int64_t max_sequences = 0;  // of a replica
  int64_t max_sequence_length = 0;
  int64_t total_pages = 0;  // ids of KV pages are below it; the same for all runs of an engine
  ReturnHiddenStates hidden_states = ReturnHiddenStates::kNone;
  int64_t layers = 0;  // captured, kSelectedLayers
};

}  // namespace plumbline
