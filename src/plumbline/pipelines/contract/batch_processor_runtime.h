// What a batch processor knows of the deployment, and the largest step it allows (decoder contract, sections
// 5.5 and 7.3).
#pragma once

#include <cstdint>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/nn/distributed_logits_postprocess.h"
#include "plumbline/pipelines/contract/input_tensor.h"
#include "plumbline/pipelines/contract/kv_cache_params.h"

namespace plumbline {

struct BatchProcessorRuntime {
  std::vector<DeviceRef> devices;  // the ranks; the first one packs the batch
  ReturnLogits return_logits = ReturnLogits::kLastToken;
  int64_t max_batch_size = 1;  // sequences a replica
  int64_t max_seq_len = 1;
  int64_t max_batch_input_tokens = 1;  // a replica and step
  bool enable_chunked_prefill = true;  // false: a step may exceed the tokens by one whole sequence
  int data_parallel_degree = 1;
  ReturnHiddenStates return_hidden_states = ReturnHiddenStates::kNone;
  std::vector<InputTensor> signal_buffers;  // one a device, u8; other ranks' have no data
  int32_t pad_token_id = 0;
  KvCacheParams kv_params;
  bool is_last_stage = true;  // false: the decoder returns a stage boundary in place of its outputs

  int64_t GlobalBatchSize() const { return max_batch_size * data_parallel_degree; }
  // dp * max(max_batch_size, min(budget, max_batch_size * max_seq_len)), where the budget is
  // max_batch_input_tokens, and max_seq_len more without chunked prefill.
  int64_t MaxStepTokens() const;
};

// Refuses sizes below 1, no devices, a device twice, the host as a device, degrees that do not divide the
// devices, KV shards that are not those of the replicas, signal buffers that are not one a device, and steps
// of more tokens than u32 row offsets count.
Status CheckRuntime(const BatchProcessorRuntime& runtime);

}  // namespace plumbline
