// Fills short replicas of a decode batch with dummy sequences, so that every replica runs as many rows
// (decoder contract, section 5.4).
#pragma once

#include <span>
#include <vector>

#include "plumbline/pipelines/contract/batch_processor_runtime.h"
#include "plumbline/pipelines/contract/text_context.h"

namespace plumbline {

class ReplicaPadder {
 public:
  // Dummies run at most max_active_length rows: 1 and the most drafts a step verifies.
  ReplicaPadder(const BatchProcessorRuntime& runtime, int64_t max_active_length);

  // The batches, those that are shorter than the longest filled up at their end with dummies: one pad token
  // in the cache, `active_length` pad tokens to run, every page the null page, is_padding set. Real contexts
  // keep their places. Only where every context runs `active_length` tokens (a prefill batch comes back as it
  // is) and sizes differ. Views of this padder and of the given batches, until the next call; allocates
  // nothing once every replica has been as long as it gets.
  std::span<const ReplicaBatch> PadReplicas(std::span<const ReplicaBatch> batches, int64_t active_length = 1);

 private:
  std::vector<int32_t> tokens_;  // of every dummy
  std::vector<uint32_t> pages_;
  std::vector<std::vector<TextContext>> contexts_;
  std::vector<ReplicaBatch> padded_;
};

}  // namespace plumbline
