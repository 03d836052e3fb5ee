#include "plumbline/pipelines/contract/decoder_scratch.h"

#include <algorithm>

namespace plumbline {

Result<DecoderScratch> DecoderScratch::Allocate(const InputTree<InputSpec>& scratch_types,
                                                std::span<const DeviceRef> local, const DimSizes& dims) {
  RETURN_IF_ERROR(CheckTree(scratch_types, "scratch_types"));
  DecoderScratch scratch;
  for (const auto& leaf : scratch_types.leaves) {
    const InputSpec& spec = leaf.value;
    std::vector<int64_t> sizes;
    for (const Dim& dim : spec.shape) {
      const auto bound = dims.find(dim.name);
      if (dim.is_named() && bound == dims.end()) {
        return InvalidInput("scratch/{}: got dimension {}, want one with a largest size (scratch_types)",
                            leaf.path, dim.name);
      }
      sizes.push_back(dim.is_named() ? bound->second : dim.size);
    }
    InputTensor tensor = {.dtype = spec.dtype, .shape = InputShape(sizes), .device = spec.device};
    if (std::find(local.begin(), local.end(), spec.device) != local.end()) {
      ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(tensor.Bytes()));
      tensor.data = buffer.data();
      scratch.buffers_.push_back(std::move(buffer));
    }
    scratch.inputs_.Add(leaf.path, tensor);
  }
  return scratch;
}

}  // namespace plumbline
