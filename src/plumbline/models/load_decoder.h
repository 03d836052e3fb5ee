// From a checkpoint to a decoder whose weights are packed for the kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "plumbline/kernels/kernel_context.h"
#include "plumbline/models/model_source.h"
#include "plumbline/nn/decoder.h"

namespace plumbline {

// Called after each tensor with the bytes of the checkpoint read so far and in all.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

// Every tensor the configuration asks for must be there with its shape, and none may be left over: a weight
// this architecture does not use means the model is not what it says. The checkpoint's pages leave resident
// memory as they are packed.
Result<Decoder> LoadDecoder(const KernelContext& context, const Checkpoint& checkpoint, Compute compute,
                            const LoadProgress& progress);

// What LoadDecoder would hold, without reading a weight.
Result<int64_t> PackedDecoderBytes(const Checkpoint& checkpoint, Compute compute);

}  // namespace plumbline
