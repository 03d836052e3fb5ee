// A decoder's workspace: buffers allocated once, the same every step. What they hold means nothing in the
// next step (decoder contract, section 7.3).
#pragma once

#include <span>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/pipelines/contract/dim_sizes.h"
#include "plumbline/pipelines/contract/input_tensor.h"
#include "plumbline/pipelines/contract/input_tree.h"
#include "plumbline/tensor/buffer.h"

namespace plumbline {

class DecoderScratch {
 public:
  // One buffer for each leaf of `scratch_types` that is on a rank of `local`, zeroed; the others have no
  // data. Refuses a named dimension that `dims` does not size.
  static Result<DecoderScratch> Allocate(const InputTree<InputSpec>& scratch_types,
                                         std::span<const DeviceRef> local, const DimSizes& dims);
  const InputTree<InputTensor>& inputs() const { return inputs_; }

 private:
  InputTree<InputTensor> inputs_;
  std::vector<Buffer> buffers_;
};

}  // namespace plumbline
