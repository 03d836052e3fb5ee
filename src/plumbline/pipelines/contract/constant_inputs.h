// Checkpoint-backed inputs, owned for the deployment's lifetime and passed each step by reference (decoder
// contract, section 7.3).
#pragma once

#include <memory>
#include <utility>

#include "plumbline/pipelines/contract/input_tensor.h"
#include "plumbline/pipelines/contract/input_tree.h"

namespace plumbline {

class ConstantInputs {
 public:
  // `owner` keeps what the leaves point to.
  ConstantInputs(InputTree<InputTensor> inputs, std::shared_ptr<const void> owner)
      : inputs_(std::move(inputs)), owner_(std::move(owner)) {}
  const InputTree<InputTensor>& inputs() const { return inputs_; }

 private:
  InputTree<InputTensor> inputs_;
  std::shared_ptr<const void> owner_;
};

}  // namespace plumbline
