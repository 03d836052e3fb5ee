// What a decoder's step gives, by name (decoder contract, sections 6.4 and 7.3).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/pipelines/contract/batch_processor_runtime.h"
#include "plumbline/pipelines/contract/input_tensor.h"
#include "plumbline/pipelines/contract/input_tree.h"

namespace plumbline {

struct ModelOutputs {
  std::optional<InputTensor> logits;  // f32 [R, vocab]: R of the batch, its tokens, or the last offset
  std::optional<InputTensor> next_token_logits;  // f32 [batch, vocab]
  std::optional<InputTensor> logit_offsets;      // [batch + 1]: i64 (VARIABLE), u32 (ALL)
  InputTree<InputTensor> hidden_states;          // any number
  InputTree<InputTensor> extra;                  // what the decoder's registration names beside these
  // On a stage before the last, all there is: what the next stage takes, unchanged.
  std::optional<InputTree<InputTensor>> stage_boundary;
};

// An output of this decoder beside the contract's. Every step brings it.
struct OutputType {
  std::string name;
  DType dtype = DType::kF32;
  int rank = 1;
};

struct OutputNames {
  std::vector<OutputType> extra;
  bool may_omit_logits = false;  // the decoder can stream its logits instead of returning them
  // The hidden states, in order, where there are others than return_hidden_states counts; f32 [rows, hidden].
  std::vector<std::string> hidden_states;
};

// Maps the leaves next_token_logits, logits, logit_offsets, hidden_states/..., and `names.extra`; or, where
// this is not the last stage, stage_boundary/... Where `logits` is absent, next_token_logits are both.
//
// Refuses, naming the leaf: unknown names; outputs that return_logits or return_hidden_states do not ask for
// and missing ones (hidden states: 1 leaf of LAST, one a device of LAST_PER_DEVICE, ALL and ALL_NORMALIZED, a
// multiple of the devices of SELECTED_LAYERS; or those of `names`); dtypes and shapes other than above; a
// boundary on the last stage and anything else before it.
Result<ModelOutputs> MapOutputs(const InputTree<InputTensor>& outputs, const BatchProcessorRuntime& runtime,
                                const OutputNames& names);

// The same, step after step into one record: once it has seen outputs of these names it allocates nothing.
class OutputMapper {
 public:
  Result<const ModelOutputs*> Map(const InputTree<InputTensor>& outputs, const BatchProcessorRuntime& runtime,
                                  const OutputNames& names);

 private:
  std::vector<std::string> checked_;  // names that are known to make a tree
  ModelOutputs mapped_;
};

// The same from the positional tuple (next_token_logits, [logits, logit_offsets], [hidden states...]), whose
// hidden states are called hidden_states/0, 1, ...
Result<ModelOutputs> MapOutputs(std::span<const InputTensor> outputs, const BatchProcessorRuntime& runtime);

}  // namespace plumbline
