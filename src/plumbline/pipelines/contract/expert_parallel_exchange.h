// The expert-parallel communication buffers that every step passes (decoder contract, section 6.3).
#pragma once

#include "plumbline/pipelines/contract/input_tensor.h"
#include "plumbline/pipelines/contract/input_tree.h"

namespace plumbline {

struct ExpertParallelExchange {
  InputTree<InputTensor> inputs;  // in the order in which the decoder takes them; other ranks' have no data
};

}  // namespace plumbline
