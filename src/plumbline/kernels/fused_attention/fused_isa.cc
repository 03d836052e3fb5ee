#include "plumbline/kernels/fused_attention/fused_backward_isa.h"

namespace plumbline::PLUMBLINE_ISA {

extern const FusedKernels kFusedKernels;
const FusedKernels kFusedKernels = {PackFusedRows,    PackFusedLanes, PackFusedColumns, StoreFusedRows,
                                    FusedRowDots,     FusedForward,   FusedPairs,       FusedAddOverKeys,
                                    FusedAddOverRows, FusedAdd,       kPanels};

extern const FusedKernels* const kFusedPairs;

#if defined(__AVX512BF16__)

namespace {
const FusedKernels kPairs = {PackPairRows,
                             PackPairLanes,
                             PackPairColumns,
                             StoreFusedRows,
                             FusedRowDots,
                             FusedForwardOf<Bf16Element, Bf16Element>,
                             FusedPairsOfPairs,
                             PairsAddOverKeys,
                             PairsAddOverRows,
                             FusedAdd,
                             false};
}  // namespace
const FusedKernels* const kFusedPairs = &kPairs;

#else

const FusedKernels* const kFusedPairs = nullptr;

#endif

}  // namespace plumbline::PLUMBLINE_ISA
