// From a checkpoint to a decoder whose weights are packed for the kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "plumbline/kernels/kernel_context.h"
#include "plumbline/models/model_source.h"
#include "plumbline/nn/decoder.h"

namespace plumbline {

// Called after each tensor with the bytes of the checkpoint read so far and in all.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

struct LoadOptions {
  Compute compute = Compute::kBf16;
  ParallelDegrees degrees;
  int rank = 0;
  // Other ranks' decoders in this process, whose layers are shared where the rank has the same ones. Entries
  // may be null.
  std::span<const Decoder* const> loaded;
};

// What rank `options.rank` holds; only the bytes of its parts are read. Every tensor the configuration asks
// for must be there with its shape, whoever holds it, and none may be left over: a weight this architecture
// does not use means the model is not what it says. The checkpoint's pages leave resident memory as they are
// packed. Refuses degrees as CheckDegrees does.
Result<Decoder> LoadDecoder(const KernelContext& context, const Checkpoint& checkpoint,
                            const LoadOptions& options, const LoadProgress& progress);

// What LoadDecoder would hold on one rank, without reading a weight.
Result<int64_t> PackedDecoderBytes(const Checkpoint& checkpoint, Compute compute);

}  // namespace plumbline
