#pragma once

#include "plumbline/base/isa.h"
#include "plumbline/kernels/limits/limits_kernels.h"

namespace plumbline {

const LimitsKernels& LimitsKernelsOf(Isa isa);

}  // namespace plumbline
