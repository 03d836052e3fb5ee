// What bench measures on a model: the speeds of prefill, decode and scoring, and what each costs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/pipelines/runtime.h"

namespace plumbline::cli {

struct BenchOptions {
  std::vector<int32_t> prompts = {128, 512};       // tokens of each prefill, and the longest is scored
  std::vector<int32_t> streams = {1, 16, 32, 64};  // sequences of each decode
  int64_t new_tokens = 64;                         // each of them
  int64_t repetitions = 3;                         // of which the best counts
  int64_t page_size = 64;
  const std::atomic<bool>* cancelled = nullptr;
};

struct BenchLine {
  std::string work;                // "prefill 512"
  int64_t tokens = 0;              // that `seconds` made, read or scored
  int64_t steps = 0;               // of the decoder: each reads every packed weight once
  double seconds = 0;              // the best of the repetitions
  double operations = 0;           // floating-point operations of the matmuls and of attention
  double first_token_seconds = 0;  // prefill: until the first token is there; else 0
  int64_t moved_bytes = 0;         // by rank 0 for `tokens` (Communicator::moved_bytes); 0 on one rank
};

// Bytes of packed weights that a step reads.
int64_t StepWeightBytes(const Runtime& runtime);

// Refuses a prompt or a decode that the model's context cannot hold.
Result<std::vector<BenchLine>> RunBench(const Runtime& runtime, const BenchOptions& options);

}  // namespace plumbline::cli
