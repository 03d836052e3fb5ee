#pragma once

#include "plumbline/base/isa.h"

namespace plumbline {

// The supported instruction set that multiplies bf16 fastest: the strongest, unless that is avx512_bf16 on
// cores that do fewer operations a second with vdpbf16ps than with float32 multiply-adds; then avx512.
// Measured, in a tenth of a millisecond. An error where the machine has none.
Result<Isa> FastestIsa();

// The rule itself: operations a second of the two.
Isa ChooseIsa(Isa strongest, double dot_bf16, double multiply_add);

}  // namespace plumbline
