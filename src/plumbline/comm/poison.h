// The first error of a family of groups, seen by every thread that works for it.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "plumbline/base/status.h"

namespace plumbline {

class Poison {
 public:
  // Sequentially consistent, so that "I read your buffer" and "the family is poisoned" cannot miss each
  // other.
  bool set() const { return set_.load(std::memory_order_seq_cst); }

  // Keeps the first error that `rank` or another brings, as "rank R: message".
  void Set(int rank, Error error) {
    error.message = fmt::format("rank {}: {}", rank, error.message);
    SetAsIs(std::move(error));
  }
  void SetAsIs(Error error) {
    const std::lock_guard lock(mutex_);
    if (set()) return;
    error_ = std::move(error);
    set_.store(true, std::memory_order_seq_cst);
  }

  // Meaningful once set.
  Error error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  Status status() const {
    if (!set()) return {};
    return std::unexpected(error());
  }

 private:
  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;
  Error error_;
};

}  // namespace plumbline
