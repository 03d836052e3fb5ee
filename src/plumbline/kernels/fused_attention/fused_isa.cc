#include "plumbline/kernels/fused_attention/fused_backward_isa.h"

namespace plumbline::PLUMBLINE_ISA {

extern const FusedKernels kFusedKernels;
const FusedKernels kFusedKernels = {PackFusedRows, PackFusedColumns, StoreFusedRows, FusedRowDots,
                                    FusedForward,  FusedPairs,       FusedProducts,  FusedAdd};

}  // namespace plumbline::PLUMBLINE_ISA
