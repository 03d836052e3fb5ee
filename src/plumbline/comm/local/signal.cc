#include "plumbline/comm/local/signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <thread>

namespace plumbline {
namespace {

// A poisoned family wakes nobody: sleepers find out after this long.
constexpr timespec kSleep = {.tv_sec = 0, .tv_nsec = 5'000'000};

}  // namespace

void Signal::Yield() { std::this_thread::yield(); }

void Signal::Sleep(uint32_t target) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = value_.load(std::memory_order_seq_cst);
  if (!Reached(seen, target)) {
    static_assert(sizeof(value_) == sizeof(uint32_t));
    // Not while the value is another than `seen`: a signal in between is not slept through.
    syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, &kSleep, nullptr, 0);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Signal::Wake() { syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace plumbline
