// The controller's way to run a step: packs each micro-batch with the decoder's batch processor, sends all of
// them to every rank, and hears what the last stage made of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "plumbline/pipelines/contract/decoder_batch_processor.h"
#include "plumbline/pipelines/contract/decoder_message.h"
#include "plumbline/pipelines/contract/kv_cache_inputs.h"
#include "plumbline/pipelines/declared_step.h"
#include "plumbline/pipelines/runtime.h"
#include "plumbline/pipelines/step_plan.h"
#include "plumbline/pipelines/step_state.h"

namespace plumbline {

class StepDriver {
 public:
  // `layers`: captured, kSelectedLayers.
  StepDriver(const Runtime& runtime, const ExecutorOptions& options, std::vector<int32_t> layers);
  ~StepDriver();
  StepDriver(const StepDriver&) = delete;
  StepDriver& operator=(const StepDriver&) = delete;

  // Memory for the largest step (max_... and total_pages of `sizes`), on every rank. KV pages keep what they
  // hold.
  Status Prepare(const ExecutorOptions& sizes);

  // Runs them in order; on_outputs(i, outputs) comes after micro-batch i, when those behind it may be under
  // way already.
  Status Run(std::span<const MicroBatch> batches, const Rank::OnOutputs& on_outputs);

  int64_t engine() const { return engine_; }  // as Rank knows it

 private:
  Status BindInputs(const DeclaredStep& step);
  Status Pack(const MicroBatch& batch);
  Status PackContexts();

  const Runtime& runtime_;
  Rank& rank_;
  ExecutorOptions options_;
  std::vector<int32_t> layers_;
  int64_t engine_ = -1;  // not created yet

  std::unique_ptr<StepState> state_;
  std::unique_ptr<DecoderBatchProcessor> processor_;
  std::unique_ptr<KvCacheInputBuilder> kv_;
  std::vector<std::vector<TextContext>> contexts_;  // by replica
  std::vector<ReplicaBatch> replica_batches_;
  VisionInputs<InputTensor> vision_;  // of no rows: there is no vision stage
  BroughtInputs brought_;
  std::vector<std::byte> message_, payload_;
  std::vector<int64_t> sizes_;
};

}  // namespace plumbline
