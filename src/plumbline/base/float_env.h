// The floating-point environment of the numerics contract: round to nearest even, flush to zero,
// denormals are zero. Set by the thread pool's workers and at every public entry that computes; the
// caller's environment comes back when the scope ends.
#pragma once

#include <xmmintrin.h>

namespace plumbline {

class ScopedFloatEnv {
 public:
  // 0x1f80: all exceptions masked, round to nearest; 0x8000 flush to zero; 0x0040 denormals are zero.
  ScopedFloatEnv() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80u | 0x8000u | 0x0040u); }
  ~ScopedFloatEnv() { _mm_setcsr(saved_); }
  ScopedFloatEnv(const ScopedFloatEnv&) = delete;
  ScopedFloatEnv& operator=(const ScopedFloatEnv&) = delete;

 private:
  unsigned saved_;
};

}  // namespace plumbline
