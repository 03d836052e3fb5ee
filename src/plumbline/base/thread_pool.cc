#include "plumbline/base/thread_pool.h"

#include <immintrin.h>

#include "plumbline/base/check.h"
#include "plumbline/base/float_env.h"

namespace plumbline {
namespace {

// Spins long enough to catch the next kernel of a step, then gives the core away, then sleeps on the
// atomic, so an idle pool costs nothing.
constexpr int kPauses = 2000;
constexpr int kYields = 200;

// Parts of the gate.
constexpr uint64_t kClosed = uint64_t{1} << 31;
constexpr uint64_t kInside = kClosed - 1;
constexpr uint64_t Open(uint64_t generation) { return generation << 32; }

template <typename T>
void WaitWhileEqual(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kPauses; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    _mm_pause();
  }
  for (int i = 0; i < kYields; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    std::this_thread::yield();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  PLUMBLINE_CHECK(threads >= 1);
  workers_.reserve(threads - 1);
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i] { WorkerLoop(i); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunErased(Job job, const void* context, bool wait_for_all) {
  ScopedFloatEnv env;
  if (threads_ == 1) {
    job(context, 0);
    return;
  }
  // The gate is closed and empty, so no worker looks at these.
  job_ = job;
  context_ = context;
  finished_.store(0, std::memory_order_relaxed);
  const uint64_t generation = generation_.load(std::memory_order_relaxed) + 1;
  gate_.store(Open(generation), std::memory_order_release);
  generation_.store(generation, std::memory_order_release);
  generation_.notify_all();
  job(context, 0);
  if (wait_for_all) {
    for (int done = finished_.load(std::memory_order_acquire); done != threads_ - 1;
         done = finished_.load(std::memory_order_acquire)) {
      WaitWhileEqual(finished_, done);
    }
  }
  gate_.fetch_or(kClosed, std::memory_order_acq_rel);
  for (uint64_t gate = gate_.load(std::memory_order_acquire); (gate & kInside) != 0;
       gate = gate_.load(std::memory_order_acquire)) {
    WaitWhileEqual(gate_, gate);
  }
}

void ThreadPool::WorkerLoop(int thread) {
  ScopedFloatEnv env;
  uint64_t seen = 0;
  while (true) {
    WaitWhileEqual(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    uint64_t gate = gate_.load(std::memory_order_acquire);
    while (
        (gate & ~kInside) == Open(seen) &&
        !gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
    }
    if ((gate & ~kInside) != Open(seen)) continue;  // over already
    job_(context_, thread);
    finished_.fetch_add(1, std::memory_order_release);
    finished_.notify_one();
    gate_.fetch_sub(1, std::memory_order_release);
    gate_.notify_one();
  }
}

}  // namespace plumbline
