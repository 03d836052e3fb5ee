// Work on what is read once, in order: a thread should stream through a part of its own, and nobody should
// wait for the slower of two.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "plumbline/base/thread_pool.h"

namespace plumbline {

// Calls fn(begin, end, thread) for runs that make up [0, count), and returns when all are done. A thread
// takes shorter and shorter runs, at most `longest` long, from the front of its own share of the indices,
// then of what others still have.
template <typename Fn>
void ShareRuns(ThreadPool& pool, int64_t count, Fn&& fn, int64_t longest = INT64_MAX) {
  constexpr int64_t kMostShares = 128;
  struct alignas(64) Share {
    int64_t next;  // by way of atomic_ref
    int64_t end;
  };
  Share shares[kMostShares];
  const int64_t parts = std::min<int64_t>({pool.threads(), kMostShares, count});
  for (int64_t s = 0; s < parts; ++s) shares[s] = {s * count / parts, (s + 1) * count / parts};
  pool.ParallelFor(parts, [&](int64_t own, int thread) {
    for (int64_t s = 0; s < parts; ++s) {
      const Share& share = shares[(own + s) % parts];
      const std::atomic_ref<int64_t> next(shares[(own + s) % parts].next);
      for (int64_t begin = next.load(std::memory_order_relaxed); begin < share.end;) {
        const int64_t left = share.end - begin;
        const int64_t run = parts == 1 ? left : std::clamp<int64_t>(left / 3, 1, longest);
        if (!next.compare_exchange_weak(begin, begin + run, std::memory_order_relaxed)) continue;
        fn(begin, begin + run, thread);
        begin = next.load(std::memory_order_relaxed);
      }
    }
  });
}

}  // namespace plumbline
