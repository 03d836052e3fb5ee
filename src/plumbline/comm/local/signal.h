// A number that one thread raises and others wait for: they spin, then give the core away, then sleep in the
// kernel.
#pragma once

#include <atomic>
#include <cstdint>

namespace plumbline {

// Whether a number that wraps around has reached another.
constexpr bool Reached(uint32_t value, uint32_t target) { return static_cast<int32_t>(value - target) >= 0; }

class Signal {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }

  // Only one thread ever raises.
  void Raise(uint32_t value) {
    // Sequentially consistent: either the sleeper sees the value or this thread sees the sleeper.
    value_.store(value, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) Wake();
  }

  // Returns true once the value has reached `target`, false if it has not when give_up() says so. give_up is
  // asked now and then, at the latest every few milliseconds. `pauses`: how long to hold on to the core.
  template <typename GiveUp>
  bool Wait(uint32_t target, int pauses, GiveUp&& give_up) {
    for (int i = 0; i < pauses; ++i) {
      if (Reached(value(), target)) return true;
      Pause();
    }
    for (int i = 0;; ++i) {
      if (Reached(value(), target)) return true;
      // What made it give up may have come after the last signal: look again.
      if (give_up()) return Reached(value(), target);
      if (i < kYields) {
        Yield();
      } else {
        Sleep(target);
      }
    }
  }

 private:
  static constexpr int kYields = 100;

  static void Pause() { __builtin_ia32_pause(); }
  static void Yield();
  void Sleep(uint32_t target);
  void Wake();

  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace plumbline
