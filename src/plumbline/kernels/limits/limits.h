// The limits of the machine that speeds are measured against: what a kernel could reach at best on the
// threads of a run.
#pragma once

#include "plumbline/kernels/kernel_context.h"

namespace plumbline {

struct MachineLimits {
  double read_bytes = 0;  // bytes a second, read by all threads at once from huge pages, four streams each
  double multiply_add =
      0;  // float32 fused multiply-adds of the run's instruction set, operations a second (2 each)
  double dot_bf16 = 0;  // vdpbf16ps, operations a second (4 a lane); 0 where the machine has none
};

// The best of several short runs, about `seconds` for each limit. Needs 256 MiB of memory for reading; an
// error where the system has not that much.
Result<MachineLimits> MeasureLimits(const KernelContext& context, double seconds);

}  // namespace plumbline
