// Runs the steps of one engine on one rank: from DecoderInputs to what the controller wants of the rows.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plumbline/nn/decoder.h"
#include "plumbline/nn/distributed_logits_postprocess.h"
#include "plumbline/nn/row_scores.h"
#include "plumbline/pipelines/contract/decoder_batch_processor.h"
#include "plumbline/pipelines/contract/expert_parallel_exchange.h"
#include "plumbline/pipelines/declared_step.h"
#include "plumbline/pipelines/executor_options.h"
#include "plumbline/pipelines/kv_page_memory.h"
#include "plumbline/pipelines/rank_tensors.h"
#include "plumbline/pipelines/stage_boundary.h"
#include "plumbline/pipelines/step_outputs.h"
#include "plumbline/tensor/tensor.h"

namespace plumbline {

// Whether a step's message still has to be held to the contract: the controller has done so with its own.
enum class InputCheck : uint8_t { kFull, kDone };

class RankExecutor {
 public:
  static Result<std::unique_ptr<RankExecutor>> Create(const RankContext& rank,
                                                      std::shared_ptr<const Decoder> decoder,
                                                      const ExecutorOptions& options,
                                                      std::vector<int32_t> layers);

  // For steps of these sizes from now on. Pages keep what they hold.
  Status Resize(const ExecutorOptions& options);

  // The rank's pages, u8 [total_pages, page bytes].
  InputTensor KvBlocks();
  const RankTensors& tensors() const { return tensors_; }
  const ExpertParallelExchange& experts() const { return experts_; }

  // One step, or one micro-batch of it, as a message (contract/decoder_message.h): every rank of the world
  // gets the same. The stage's boundary comes from the stage before and goes to the one behind. Returns what
  // the step gave, as process_outputs maps it (step_outputs.h; before the last stage the boundary alone),
  // valid until the next step. Allocates nothing once it has run steps as large.
  //
  // Sequences all of whose pages are the null page pad a replica (contract/replica_padder.h): their outputs
  // mean nothing, and no other row's depends on them. Refuses them before others, and sequences of which only
  // some pages are there.
  Result<const ModelOutputs*> Execute(std::span<std::byte> message, InputCheck check = InputCheck::kFull);

 private:
  RankExecutor(const RankContext& rank, std::shared_ptr<const Decoder> decoder, std::vector<int32_t> layers,
               KvPageMemory pages);

  Status BindInputs(const DeclaredStep& step);
  Status BindBoundary();
  Result<const ModelOutputs*> Run();
  Status MakeStep(const DecoderInputs<InputTensor>& inputs);
  Status FindState(const DecoderInputs<InputTensor>& inputs);
  Status FindPages(const InputTensor& table);
  void CopyPages(std::span<const int64_t> copies);
  Result<DecoderObservers> Observe();
  Status ReceiveBoundary();
  Result<const ModelOutputs*> SendBoundary();
  Status PostprocessKind(int kind);
  Status GatherMaxLogits();

  const RankContext& rank_;
  const std::shared_ptr<const Decoder> decoder_;
  ExecutorOptions options_;
  const std::vector<int32_t> layers_;  // captured
  KvPageMemory pages_;
  DecoderWorkspace workspace_;
  RankTensors tensors_;
  ExpertParallelExchange experts_;
  std::vector<Tensor> captured_;                           // [max_rows, hidden] a layer
  std::unique_ptr<DecoderBatchProcessor> processor_;       // knows what this rank declares
  size_t cache_lengths_leaf_ = 0, lookup_table_leaf_ = 0;  // of this rank's replica in `kv`
  DecoderInputs<InputTensor> inputs_;  // rank-local leaves bound, the others views of the step's message
  StageBoundary from_stage_before_, to_stage_behind_;
  StepOutputs outputs_;

  // Of the step.
  std::span<const int64_t> tokens_, splits_, kind_sequences_, targets_;
  std::span<const uint32_t> offsets_, own_slots_;
  int64_t top_k_ = 0;
  bool wants_max_logits_ = false;
  Range own_sequences_, own_rows_;
  std::vector<int64_t> whole_batch_;  // the splits of one replica
  std::vector<int64_t> replica_rows_;
  std::vector<int32_t> positions_, row_offsets_, cache_lengths_;
  std::vector<void*> page_pointers_;
  std::vector<void* const*> sequence_pages_;
  std::vector<MatrixView<float>> captured_views_;
  std::vector<MatrixView<const float>> captured_rows_;
  std::vector<float> max_logits_;  // [layers up to this stage's last, own sequences, own heads]
  std::vector<float> all_max_logits_, gathered_max_logits_;
  std::vector<uint32_t> kind_offsets_;
  std::vector<int64_t> kind_splits_, kind_targets_;
  RowScores scores_;
  std::array<LogitsWorkspace, 3> postprocess_;  // by kind
};

}  // namespace plumbline
