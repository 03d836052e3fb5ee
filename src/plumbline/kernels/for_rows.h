// Deals the rows of an operation that treats each row by itself to the threads of a pool.
#pragma once

#include <cstdint>

#include "plumbline/base/thread_pool.h"

namespace plumbline {

// Calls fn(first_row, row_count) for disjoint runs that cover [0, rows), concurrently, under ScopedFloatEnv.
// `work` is the size of the whole operation in float32 elements of simple arithmetic: below kForkWork the
// caller does it all, because waking the others (about a microsecond) would cost more than they save.
template <typename Fn>
void ForRows(ThreadPool& pool, int64_t rows, int64_t work, Fn&& fn) {
  constexpr int64_t kForkWork = 16384;
  if (rows <= 0) return;
  const int64_t parts = work < kForkWork ? 1 : (rows < pool.threads() ? rows : pool.threads());
  pool.ParallelFor(parts, [&](int64_t part, int) {
    const int64_t begin = rows * part / parts;
    const int64_t end = rows * (part + 1) / parts;
    fn(begin, end - begin);
  });
}

}  // namespace plumbline
