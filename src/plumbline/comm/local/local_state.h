// What the ranks of a local group share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "plumbline/comm/local/mailbox.h"
#include "plumbline/comm/local/signal.h"
#include "plumbline/comm/poison.h"

namespace plumbline {

// Messages of at most this many bytes are copied into the group's own buffers.
inline constexpr size_t kStagedBytes = 4096;

enum class Collective : uint8_t {
  kBarrier,
  kBroadcast,
  kAllGather,
  kAllToAll,
  kAllReduce,
  kReduceScatter,
  kMax,
  kSplit
};

// What a rank brings to an operation.
struct Published {
  Collective what = Collective::kBarrier;
  int root = 0;
  int64_t columns = 0;              // of sums and maxima
  std::span<const std::byte> data;  // what others may read
  float* result = nullptr;          // [columns], where others find this rank's share of them; null: nowhere
  bool in_place = false;            // `data` or `result` belongs to the caller, who waits until all have read
};

// Of one rank, written by it and read by the others. What is published lies in the place of the operation's
// parity: a rank that begins operation i + 2 has seen every other begin i + 1, hence finish i.
struct alignas(128) Slot {
  Signal signal;                     // counts the rank's rounds
  std::atomic<uint32_t> reading{0};  // 1 while the rank reads what belongs to other ranks' callers
  std::atomic<bool> left{false};
  Published published[2];
  std::unique_ptr<int64_t[]> counts[2];  // [ranks], bytes for each rank
  std::unique_ptr<std::byte[]> staging[2];
};

struct LocalState;

// What a group shares with all that are split from it.
struct LocalFamily {
  explicit LocalFamily(int ranks)
      : pauses(ranks <= static_cast<int>(std::thread::hardware_concurrency()) ? 500 : 20) {}

  Poison poison;
  const int pauses;  // how long to spin: with more ranks than cores a peer may need this very core

  // Groups being made: the first member to come makes one, the last to fetch it forgets it.
  struct Making {
    std::weak_ptr<LocalState> state;
    int fetched = 0;
  };
  struct Key {
    const LocalState* parent;
    uint64_t operation;
    int color;
    auto operator<=>(const Key&) const = default;
  };
  std::mutex mutex;
  std::map<Key, Making> making;
};

struct LocalState {
  // `members`: ranks of the first group, in rank order.
  LocalState(std::shared_ptr<LocalFamily> family, std::vector<int> members);

  int ranks() const { return static_cast<int>(members.size()); }
  Mailbox& mailbox(int from, int to) { return mailboxes[from * ranks() + to]; }

  const std::shared_ptr<LocalFamily> family;
  const std::vector<int> members;
  std::vector<Slot> slots;
  std::vector<Mailbox> mailboxes;
};

}  // namespace plumbline
