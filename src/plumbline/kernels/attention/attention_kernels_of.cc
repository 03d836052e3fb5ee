#include "plumbline/kernels/attention/attention_kernels_of.h"

namespace plumbline {

const AttentionKernels& AttentionKernelsOf(Isa isa) {
  switch (isa) {
    case Isa::kAvx512Bf16:
      return isa_avx512_bf16::kAttentionKernels;
    case Isa::kAvx512:
      return isa_avx512::kAttentionKernels;
    case Isa::kAvx2:
      break;
  }
  return isa_avx2::kAttentionKernels;
}

}  // namespace plumbline
