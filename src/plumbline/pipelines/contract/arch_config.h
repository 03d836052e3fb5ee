// What an architecture's configuration says about its decoder's inputs (decoder contract, section 7.3).
#pragma once

#include <cstdint>
#include <optional>

#include "plumbline/base/dtype.h"

namespace plumbline {

struct ArchConfig {
  int64_t vocab = 0;                   // token ids are below it
  bool takes_token_positions = false;  // declares `token_positions`
  bool takes_batch_context_lengths =
      false;  // declares `batch_context_lengths`, i32 on the host, one a replica
  // Then the context lengths are of this dtype, on the devices, one a device: i32 or i64.
  std::optional<DType> device_context_length_dtype;
  // The decoder takes its signal buffers as inputs where there is more than one device. False: it reaches
  // them through its communicator and never sees them.
  bool takes_signals = true;
  bool always_signal_buffers = false;  // also on one device
};

}  // namespace plumbline
