// Fork-join over a fixed set of threads that spin, then yield, between jobs: a decoder step forks many
// times a millisecond. One pool serves one caller at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "plumbline/base/float_env.h"

namespace plumbline {

class ThreadPool {
 public:
  // `threads` >= 1 counts the caller, which works too.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls fn(thread) once on every thread, 0 <= thread < threads(), and returns when all are done.
  // Every call computes under ScopedFloatEnv. fn must not throw and must not call the pool.
  template <typename Fn>
  void Run(Fn&& fn) {
    RunErased(Erased(fn), &fn, /*wait_for_all=*/true);
  }

  // Calls fn(index, thread) once for every 0 <= index < count, handed out one at a time from a counter, and
  // returns when all are done: a thread that is not there yet when nothing is left is not waited for. A count
  // of 1 wakes nobody.
  template <typename Fn>
  void ParallelFor(int64_t count, Fn&& fn) {
    if (count <= 0) return;
    std::atomic<int64_t> next{0};
    const auto work = [&](int thread) {
      for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        fn(i, thread);
      }
    };
    if (count == 1) {
      const ScopedFloatEnv env;
      work(0);
      return;
    }
    RunErased(Erased(work), &work, /*wait_for_all=*/false);
  }

 private:
  using Job = void (*)(const void* context, int thread);

  template <typename F>
  static Job Erased(F& /*fn*/) {
    return [](const void* context, int thread) { (*static_cast<F*>(const_cast<void*>(context)))(thread); };
  }
  void RunErased(Job job, const void* context, bool wait_for_all);
  void WorkerLoop(int thread);

  const int threads_;
  Job job_ = nullptr;
  const void* context_ = nullptr;
  alignas(64) std::atomic<uint64_t> generation_{0};  // counts jobs
  // Of the current job: its generation in the upper half, whether it takes no more workers, how many are in
  // it.
  alignas(64) std::atomic<uint64_t> gate_{0};
  std::atomic<int> finished_{0};  // workers that have been in the current job
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace plumbline
