// The loops of experts.h over one row, one table for each instruction set. Float environment of the contract.
#pragma once

#include <cstdint>

namespace plumbline {

struct ExpertKernels {
  // Logits [experts] -> probabilities, in place.
  void (*softmax)(float* row, int64_t experts);
  // out [cols] (+)= the combination; outputs of `stride`, of which slots [k] are rows.
  void (*combine)(const float* weights, int64_t k, const float* outputs, int64_t stride, const int32_t* slots,
                  bool accumulate, float* out, int64_t cols);
};

namespace isa_avx2 {
extern const ExpertKernels kExpertKernels;
}
namespace isa_avx512 {
extern const ExpertKernels kExpertKernels;
}
namespace isa_avx512_bf16 {
extern const ExpertKernels kExpertKernels;
}

}  // namespace plumbline
