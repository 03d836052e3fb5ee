#include "plumbline/kernels/attention/attention_kernels_of.h"

namespace plumbline {

const AttentionKernels& AttentionKernelsOf(Isa isa) {
  return ForIsa(isa, isa_avx2::kAttentionKernels, isa_avx512::kAttentionKernels,
                isa_avx512_bf16::kAttentionKernels);
}

}  // namespace plumbline
