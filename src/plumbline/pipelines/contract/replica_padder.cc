#include "plumbline/pipelines/contract/replica_padder.h"

#include <algorithm>

#include "plumbline/base/check.h"

namespace plumbline {

ReplicaPadder::ReplicaPadder(const BatchProcessorRuntime& runtime, int64_t max_active_length)
    : tokens_(1 + max_active_length, runtime.pad_token_id),
      pages_(runtime.kv_params.PagesFor(1 + max_active_length), kNullPage) {}

std::span<const ReplicaBatch> ReplicaPadder::PadReplicas(std::span<const ReplicaBatch> batches,
                                                         int64_t active_length) {
  PLUMBLINE_CHECK(active_length >= 1 && active_length < static_cast<int64_t>(tokens_.size()));
  size_t longest = 0;
  bool differ = false;
  for (ReplicaBatch batch : batches) {
    differ = differ || batch.size() != batches[0].size();
    longest = std::max(longest, batch.size());
    for (const TextContext& context : batch) {
      if (context.active_length != active_length) return batches;
    }
  }
  if (!differ) return batches;
  const TextContext dummy = {.tokens = tokens_,
                             .processed_length = 1,
                             .active_length = active_length,
                             .pages = pages_,
                             .is_padding = true};
  contexts_.resize(std::max(contexts_.size(), batches.size()));
  padded_.assign(batches.begin(), batches.end());
  for (size_t r = 0; r < batches.size(); ++r) {
    if (batches[r].size() == longest) continue;
    contexts_[r].assign(batches[r].begin(), batches[r].end());
    contexts_[r].resize(longest, dummy);
    padded_[r] = contexts_[r];
  }
  return padded_;
}

}  // namespace plumbline
