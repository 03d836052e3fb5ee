#include "plumbline/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace plumbline::internal {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "plumbline: internal error: %s does not hold (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace plumbline::internal
