// Messages from one rank to another: the sender never waits, the receiver takes them by tag.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "plumbline/comm/local/signal.h"

namespace plumbline {

class Mailbox {
 public:
  Mailbox() = default;
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  struct Packet {
    Packet* next = nullptr;
    int tag = 0;
    size_t size = 0;
    size_t capacity = 0;
    std::unique_ptr<std::byte[]> bytes;
  };

  // For the sender. Copies into a packet that came back from the receiver, or a new one.
  void Put(std::span<const std::byte> bytes, int tag);

  // For the receiver. The oldest packet with this tag that has arrived, or null; to be given back.
  Packet* Take(int tag);
  void GiveBack(Packet* packet);
  // Waits for one packet more than Take has looked at, like Signal::Wait.
  template <typename GiveUp>
  bool Wait(int pauses, GiveUp&& give_up) {
    return sent_.Wait(seen_ + 1, pauses, give_up);
  }

 private:
  // Lists that one side pushes to and the other takes whole, newest first.
  alignas(64) std::atomic<Packet*> full_{nullptr};
  Signal sent_;
  alignas(64) std::atomic<Packet*> empty_{nullptr};
  // The sender's.
  alignas(64) Packet* spare_ = nullptr;
  uint32_t count_ = 0;
  // The receiver's: looked at and not yet asked for, oldest first.
  alignas(64) Packet* waiting_ = nullptr;
  uint32_t seen_ = 0;
};

}  // namespace plumbline
