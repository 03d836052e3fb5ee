// A step's inputs as one message: the controller packs what is carried, every rank reads it in place.
//
//   header   magic "PLDI", version, number of leaves, bytes in all
//   leaves   dtype, device, shape and offset of each carried leaf, in canonical order
//   data     the leaves' bytes, each from a multiple of 16
//
// Rank-local leaves (kv_blocks, signals, constants, scratch, ...) do not travel: a rank binds them once.
// Integers are the machine's own: a message never outlives the run.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/pipelines/contract/decoder_inputs.h"

namespace plumbline {

inline constexpr size_t kMessageAlignment = 16;

// Replaces `message`; allocates nothing once that has held a message as large. Refuses inputs that are not
// those declared, and carried leaves without data.
Status Pack(const DecoderInputs<InputTensor>& inputs, const DecoderInputs<InputSpec>& declared,
            std::vector<std::byte>& message);

// Points the carried leaves of `inputs` into `message` and leaves the rank-local ones as they are bound;
// copies and allocates nothing. `inputs` has the structure of `declared` (Like<InputTensor>(declared)). A
// leaf keeps the device it was packed for: each rank has a copy of what the first one staged.
//
// Refuses a message that does not begin at a multiple of 16, is cut short, or does not hold the declared
// leaves with their dtypes, devices, ranks and fixed sizes; `inputs` then means nothing. What the data say is
// CheckDecoderInputs' matter.
Status Unpack(std::span<std::byte> message, const DecoderInputs<InputSpec>& declared,
              DecoderInputs<InputTensor>& inputs);

}  // namespace plumbline
