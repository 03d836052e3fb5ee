// Holds declared and passed inputs of a decoder to the contract (decoder contract, section 7.1), before
// anything runs. Every error names the field.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "plumbline/pipelines/contract/arch_config.h"
#include "plumbline/pipelines/contract/batch_processor_runtime.h"
#include "plumbline/pipelines/contract/decoder_inputs.h"
#include "plumbline/pipelines/contract/dim_sizes.h"

namespace plumbline {

// What a decoder declares, against the field table:
//
//   field                   dtype       shape                    device        residence   when
//   tokens                  i64         [total_seq_len]          first         carried     always
//   vision                  f32 | bf16  [vision_rows, H]         each          carried     as declared; then
//   an
//     indices               i32         [vision_rows]            each          carried       index a row
//   input_row_offsets       u32         [input_row_offsets_len]  first         carried     always
//   token_positions         i64         [total_seq_len]          first         carried takes_token_positions
//   host_input_row_offsets  u32         [input_row_offsets_len]  host          carried     data parallel, or
//   declared return_n_logits         i64         [return_n_logits]        host          carried     always
//   data_parallel_splits    i64         [replicas + 1]           host          carried     data parallel, or
//   declared signals                 u8          [bytes]                  each          rank-local
//   takes_signals and more than
//                                                                                        one device, or
//                                                                                        always_...
//   kv                      any                                                            always
//   batch_context_lengths   i32         [1]                      host          carried
//   takes_batch_context_lengths,
//                           as set      [1]                      each                      one a replica or a
//                           device
//   ep                      any                                  any           rank-local  as declared
//   lora                    i32 [lora_groups], u32 [lora_group_offsets_len] on the first device,
//                           i64 [lora_rows] on the host, then adapters         carried     as declared
//   constants, scratch      any                                  a device      rank-local  as declared
//   state                   any                                  any           any         as declared
//   stage_boundary          any                                  a device      rank-local  as declared
//
// Devices are those of the runtime. A decoder on devices takes context lengths where the degree of data
// parallelism is 1 or the number of devices.
Status CheckDeclaredInputs(const DecoderInputs<InputSpec>& declared, const ArchConfig& config,
                           const BatchProcessorRuntime& runtime);

// Refuses, naming the first difference, records that have not the same fields, leaf counts and paths:
// undeclared inputs, and declared ones that are missing.
template <typename A, typename DeclaredT>
Status CheckSameStructure(const A& inputs, const DeclaredT& declared);

// What a step must keep to, beside its declaration.
struct StepLimits {
  const DimSizes* largest = nullptr;     // of named dimensions; null: none
  DeviceRef local = DeviceRef::Rank(0);  // whose rank-local leaves must be bound
  int64_t vocab = 0;                     // 0: any token id
  int64_t max_seq_len = 0;               // 0: any
  int64_t total_num_pages = 0;           // 0: any page id
};

// A step's inputs against their declaration: the same fields and leaves, each leaf's dtype, device and shape,
// the same size wherever a dimension's name is used, at most its largest size (scratch: always the largest),
// data where there are elements. Then the values: row offsets that begin at 0, end at the tokens and leave no
// sequence empty, their host copy, splits that cover the batch, return_n_logits between 1 and the shortest
// sequence, token ids and positions in range, cache lengths and page ids of each replica. Allocates nothing
// where all is well.
Status CheckDecoderInputs(const DecoderInputs<InputTensor>& inputs, const DecoderInputs<InputSpec>& declared,
                          const StepLimits& limits);

namespace internal {

Status Undeclared(const LeafName& name);
Status Missing(const LeafName& name);
Status OtherLeafCount(const LeafName& name, size_t got, size_t want);
Status OtherPath(const LeafName& got, const LeafName& want);

template <typename A, typename B>
Status CheckSameTuple(const LeafName& name, const A& a, const B& b) {
  return a.size() == b.size() ? Status() : OtherLeafCount(name, a.size(), b.size());
}

template <typename A, typename B>
Status CheckSameTree(DecoderField field, const InputTree<A>& a, const InputTree<B>& b) {
  if (a.leaves.size() != b.leaves.size()) {
    return OtherLeafCount({.field = field}, a.leaves.size(), b.leaves.size());
  }
  for (size_t i = 0; i < a.leaves.size(); ++i) {
    if (a.leaves[i].path != b.leaves[i].path) {
      return OtherPath({.field = field, .path = a.leaves[i].path},
                       {.field = field, .path = b.leaves[i].path});
    }
  }
  return {};
}

}  // namespace internal

template <typename A, typename DeclaredT>
Status CheckSameStructure(const A& inputs, const DeclaredT& declared) {
  using enum DecoderField;
  const auto got = PresentFields(inputs), want = PresentFields(declared);
  for (int i = 0; i < kDecoderFields; ++i) {
    const LeafName name = {.field = static_cast<DecoderField>(i)};
    if (got[i] && !want[i]) return internal::Undeclared(name);
    if (want[i] && !got[i]) return internal::Missing(name);
  }
  const auto tuple = [](DecoderField field, const auto& a, const auto& b) {
    return a.has_value() ? internal::CheckSameTuple({.field = field}, *a, *b) : Status();
  };
  const auto tree = [](DecoderField field, const auto& a, const auto& b) {
    return a.has_value() ? internal::CheckSameTree(field, *a, *b) : Status();
  };
  if (inputs.vision.has_value()) {
    RETURN_IF_ERROR(internal::CheckSameTuple({kVision, "embeddings"}, inputs.vision->embeddings,
                                             declared.vision->embeddings));
    RETURN_IF_ERROR(
        internal::CheckSameTuple({kVision, "indices"}, inputs.vision->indices, declared.vision->indices));
  }
  RETURN_IF_ERROR(tuple(kSignals, inputs.signals, declared.signals));
  RETURN_IF_ERROR(internal::CheckSameTree(kKv, inputs.kv, declared.kv));
  RETURN_IF_ERROR(tuple(kBatchContextLengths, inputs.batch_context_lengths, declared.batch_context_lengths));
  RETURN_IF_ERROR(tree(kEp, inputs.ep, declared.ep));
  RETURN_IF_ERROR(tuple(kLora, inputs.lora, declared.lora));
  RETURN_IF_ERROR(tree(kConstants, inputs.constants, declared.constants));
  RETURN_IF_ERROR(tree(kState, inputs.state, declared.state));
  RETURN_IF_ERROR(tree(kScratch, inputs.scratch, declared.scratch));
  return tree(kStageBoundary, inputs.stage_boundary, declared.stage_boundary);
}

}  // namespace plumbline
