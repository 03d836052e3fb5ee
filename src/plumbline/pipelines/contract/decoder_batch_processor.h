// Packs the replicas' requests into the inputs of one decoder step, and names what the step gives back
// (decoder contract, sections 5 and 7.2; seed 001).
//
//   sequences               replica after replica, in the order given
//   tokens                  their active tokens, one after the other
//   input_row_offsets       0, then the running sum of active lengths
//   token_positions         processed_length + k of the k-th active token
//   data_parallel_splits    0, then the running sum of the replicas' sequences
//   batch_context_lengths   sum of a replica's current positions, each rounded up to whole pages
//
// An empty batch has no tokens and offsets [0]; an empty replica is an interval of width zero.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "plumbline/pipelines/contract/arch_config.h"
#include "plumbline/pipelines/contract/batch_processor_runtime.h"
#include "plumbline/pipelines/contract/check_decoder_inputs.h"
#include "plumbline/pipelines/contract/constant_inputs.h"
#include "plumbline/pipelines/contract/declared_buffers.h"
#include "plumbline/pipelines/contract/decoder_scratch.h"
#include "plumbline/pipelines/contract/expert_parallel_exchange.h"
#include "plumbline/pipelines/contract/kv_cache_inputs.h"
#include "plumbline/pipelines/contract/model_outputs.h"
#include "plumbline/pipelines/contract/request_state_store.h"

namespace plumbline {

// A field that a decoder declares, and its leaves below the field's name (one leaf of path "": the field is
// one tensor).
struct InputDescriptor {
  DecoderField field = DecoderField::kTokens;
  InputTree<InputSpec> types;
};

// What others bring to a step; null or empty where the decoder does not declare it.
struct BroughtInputs {
  const VisionInputs<InputTensor>* vision = nullptr;       // from the vision stage
  std::span<const InputTensor> lora;                       // from the adapters
  const InputTree<InputTensor>* stage_boundary = nullptr;  // from the stage before
};

class DecoderBatchProcessor {
 public:
  // `inputs`: what the decoder declares, which bind_input_tree then keeps to; empty: whatever is bound.
  // Declares the buffers of tokens and offsets at their largest sizes; allocates none. Refuses what
  // CheckRuntime refuses, and descriptors out of canonical order.
  static Result<std::unique_ptr<DecoderBatchProcessor>> Create(const ArchConfig& config,
                                                               const BatchProcessorRuntime& runtime,
                                                               std::vector<InputDescriptor> inputs = {});

  // Null: no expert-parallel inputs. Outlives the processor.
  void bind_ep_comm_initializer(const ExpertParallelExchange* initializer) { ep_ = initializer; }

  // The decoder's inputs, field name -> subtree, and with them which optional fields a step has. Sizes the
  // ones that this fills. Refuses what FromTree and CheckDeclaredInputs refuse, fields that no descriptor
  // has, and descriptors' fields that are missing or other.
  Status bind_input_tree(const InputTree<InputSpec>& input_tree);

  // Set after construction by who owns them; a step includes them where they are set.
  const ConstantInputs* constant_inputs = nullptr;
  const DecoderScratch* scratch = nullptr;
  RequestStateStore* state_store = nullptr;

  // The bound inputs in canonical order. Before binding: tokens, input_row_offsets, return_n_logits, signals
  // of more than one device, and the KV cache's leaves.
  InputTree<InputSpec> get_symbolic_inputs(const KvCacheParams& kv_params,
                                           std::span<const DeviceRef> device_refs) const;

  // The largest size of each named dimension: the state store's word first, then the runtime's:
  //   total_seq_len, lora_rows, vision_rows          MaxStepTokens
  //   input_row_offsets_len, lora_group_offsets_len  GlobalBatchSize + 1
  //   lora_groups                                    GlobalBatchSize
  //   replicaR_batch_size                            max_batch_size
  //   max_num_pages                                  pages of the longest sequence, and the padding
  //   return_n_logits                                1
  // Refuses, naming it, a dimension that neither bounds.
  Result<DimSizes> max_dims(std::span<const std::string> dims, const KvCacheParams& kv_params) const;

  // The step's inputs, views of persistent buffers until the next call, held to the contract
  // (CheckDecoderInputs). Allocates nothing once each buffer has been used. kv_cache_inputs may be null where
  // the bound tree has no KV leaves.
  //
  // Refuses, before anything is written: other than one batch for each replica; more sequences than
  // max_batch_size; more tokens than MaxStepTokens; sequences without active tokens, beyond their tokens or
  // max_seq_len; return_n_logits below 1 or above a sequence's active tokens; token ids out of the
  // vocabulary; nothing bound yet. Then undeclared inputs, declared ones that nobody brings, and whatever of
  // those brought is not as declared.
  Result<const DecoderInputs<InputTensor>*> prepare_initial_token_inputs(
      std::span<const ReplicaBatch> replica_batches, const KvCacheInputs* kv_cache_inputs = nullptr,
      int64_t return_n_logits = 1, const BroughtInputs& brought = {});

  // MapOutputs of this deployment; valid until the next call. Allocates nothing once it has seen outputs of
  // these names.
  Result<const ModelOutputs*> process_outputs(const InputTree<InputTensor>& outputs) {
    return mapper_.Map(outputs, runtime_, output_names);
  }
  Result<ModelOutputs> process_outputs(std::span<const InputTensor> outputs) const {
    return MapOutputs(outputs, runtime_);
  }
  OutputNames output_names;

  const DecoderInputs<InputSpec>* declared() const { return declared_.has_value() ? &*declared_ : nullptr; }
  int64_t buffer_allocations() const { return buffers_.allocations(); }

 private:
  DecoderBatchProcessor(const ArchConfig& config, const BatchProcessorRuntime& runtime,
                        std::vector<InputDescriptor> inputs);
  Status DeclareBuffers();
  std::optional<int64_t> RuntimeMaxDim(std::string_view dim, const KvCacheParams& kv_params) const;
  Status FindLargest();

  Status CheckBatches(std::span<const ReplicaBatch> replica_batches, int64_t return_n_logits) const;
  Status CheckContext(const TextContext& context, int64_t return_n_logits, size_t replica,
                      size_t index) const;
  Status CheckStateStore() const;
  void Count(std::span<const ReplicaBatch> replica_batches);
  Status FillTokens(std::span<const ReplicaBatch> replica_batches);
  Status FillHostInputs(std::span<const ReplicaBatch> replica_batches, int64_t return_n_logits);
  Status FillContextLengths(std::span<const ReplicaBatch> replica_batches);
  Status FillState(std::span<const ReplicaBatch> replica_batches);
  Status TakeOthers(const KvCacheInputs* kv_cache_inputs, const BroughtInputs& brought);

  ArchConfig config_;
  BatchProcessorRuntime runtime_;
  std::vector<InputDescriptor> descriptors_;
  const ExpertParallelExchange* ep_ = nullptr;
  std::optional<DecoderInputs<InputSpec>> declared_;
  DecoderInputs<InputTensor> step_;
  DeclaredBuffers buffers_;
  std::vector<std::string> context_length_names_;
  std::vector<InputTensor*> state_;  // the leaves of step_.state
  bool limits_known_ = false;
  DimSizes largest_;
  FlatBatch flat_;
  OutputMapper mapper_;
};

}  // namespace plumbline
