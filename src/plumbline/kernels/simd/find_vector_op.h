// Looks up an operation of simd/vector_ops.h by its name.
#pragma once

#include <string_view>

#include "plumbline/base/isa.h"
#include "plumbline/kernels/simd/vector_ops.h"

namespace plumbline {

inline const VectorOps& VectorOpsOf(Isa isa) {
  return ForIsa(isa, isa_avx2::kVectorOps, isa_avx512::kVectorOps, isa_avx512_bf16::kVectorOps);
}

// Null where there is none of that name.
inline const VectorOp* FindVectorOp(Isa isa, std::string_view name) {
  const VectorOps& table = VectorOpsOf(isa);
  for (int i = 0; i < table.count; ++i) {
    if (name == table.ops[i].name) return &table.ops[i];
  }
  return nullptr;
}

}  // namespace plumbline
