// Every operation of vec16.h and vmath.h as a function over arrays, one table for each instruction set, so
// that tests can compare the sets with one another and with scalar definitions.
#pragma once

#include <cstdint>

namespace plumbline {

// out[i] = op(a[i], b[i], c[i]), 0 <= i < n, lanes given and returned as their 32 bits; n is a multiple
// of 16. An operation that takes fewer operands ignores the rest.
struct VectorOp {
  const char* name;
  void (*run)(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, int64_t n);
};

struct VectorOps {
  const VectorOp* ops;
  int count;
};

namespace isa_avx2 {
extern const VectorOps kVectorOps;
}
namespace isa_avx512 {
extern const VectorOps kVectorOps;
}
namespace isa_avx512_bf16 {
extern const VectorOps kVectorOps;
}

}  // namespace plumbline
