// The kernels of an instruction set.
#pragma once

#include "plumbline/base/isa.h"
#include "plumbline/kernels/attention/attention_kernels.h"

namespace plumbline {

const AttentionKernels& AttentionKernelsOf(Isa isa);

}  // namespace plumbline
