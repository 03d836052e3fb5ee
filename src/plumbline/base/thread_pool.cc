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

void ThreadPool::RunErased(Job job, void* context) {
  ScopedFloatEnv env;
  if (threads_ == 1) {
    job(context, 0);
    return;
  }
  job_ = job;
  context_ = context;
  running_.store(threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  job(context, 0);
  for (int left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    WaitWhileEqual(running_, left);
  }
}

void ThreadPool::WorkerLoop(int thread) {
  ScopedFloatEnv env;
  uint64_t seen = 0;
  while (true) {
    WaitWhileEqual(generation_, seen);
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    job_(context_, thread);
    running_.fetch_sub(1, std::memory_order_release);
    running_.notify_one();
  }
}

}  // namespace plumbline
