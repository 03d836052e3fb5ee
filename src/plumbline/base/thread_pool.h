// Fork-join over a fixed set of threads that spin, then yield, between jobs: a decoder step forks many
// times a millisecond. One pool serves one caller at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

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
    using F = std::remove_reference_t<Fn>;
    RunErased([](void* context, int thread) { (*static_cast<F*>(context))(thread); },
              const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // Calls fn(index, thread) once for every 0 <= index < count, handed out one at a time from a counter.
  template <typename Fn>
  void ParallelFor(int64_t count, Fn&& fn) {
    if (count <= 0) return;
    std::atomic<int64_t> next{0};
    Run([&](int thread) {
      for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        fn(i, thread);
      }
    });
  }

 private:
  using Job = void (*)(void* context, int thread);
  void RunErased(Job job, void* context);
  void WorkerLoop(int thread);

  const int threads_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<uint64_t> generation_{0};
  alignas(64) std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace plumbline
