// CHECK: an invariant that only a bug can break. Prints the place and aborts.
#pragma once

namespace plumbline::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}

#define PLUMBLINE_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::plumbline::internal::CheckFailed(__FILE__, __LINE__, #condition))
