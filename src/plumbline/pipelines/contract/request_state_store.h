// Per-request state that a decoder takes each step (decoder contract, section 7.3): slots of recurrent state,
// what to score or sample of each row, whatever the architecture defines.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "plumbline/base/status.h"
#include "plumbline/pipelines/contract/input_tensor.h"
#include "plumbline/pipelines/contract/input_tree.h"
#include "plumbline/pipelines/contract/text_context.h"

namespace plumbline {

// The step's sequences, replica after replica, as the other inputs have them.
struct FlatBatch {
  std::span<const ReplicaBatch> replica_batches;
  std::span<const uint32_t> row_offsets;  // [sequences + 1]
  int64_t sequences = 0;
  int64_t tokens = 0;
};

class RequestStateStore {
 public:
  virtual ~RequestStateStore() = default;

  // The inputs, in the order in which the decoder takes them.
  virtual const InputTree<InputSpec>& state_inputs() const = 0;

  // The largest size of a dimension that these inputs introduce; nothing for any other.
  virtual std::optional<int64_t> MaxDim(std::string_view dim) const = 0;

  // Fills `state`, one tensor for each of state_inputs(), with views of memory that lives until the next
  // call: tensors of this step, or buffers that the decoder updates in place. Called once a step.
  virtual Status Fill(const FlatBatch& batch, std::span<InputTensor* const> state) = 0;
};

}  // namespace plumbline
