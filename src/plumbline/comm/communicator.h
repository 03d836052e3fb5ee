// A group of ranks that compute together, and what they can exchange (docs/parallel.md).
//
// Every member calls the same operations of a group in the same order with arguments that agree; a call
// returns when the caller's buffers are its own again. A rank has one thread for all its groups. Bits are
// moved as they are; the only sums are dyadic (base/dyadic.h), so a result depends on the leaves alone, never
// on who holds them.
//
// The first error poisons the whole family: a group, those split from it and those it was split from. A rank
// that gives up (Abort), passes arguments that do not fit the others', leaves while others wait for it, or
// dies makes every current and later call of every member return one Error, "rank 2: <cause>", with ranks
// counted in the first group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "plumbline/base/dyadic.h"
#include "plumbline/base/status.h"

namespace plumbline {

// How many bytes (or elements) each rank of a group has: one count for all, or a list [ranks]. Parts lie one
// after the other.
class Parts {
 public:
  Parts(int ranks, int64_t each) : ranks_(ranks), each_(each) {}
  explicit Parts(std::span<const int64_t> counts)
      : ranks_(static_cast<int>(counts.size())), counts_(counts.data()) {}

  int ranks() const { return ranks_; }
  int64_t count(int rank) const { return counts_ != nullptr ? counts_[rank] : each_; }
  int64_t offset(int rank) const;
  int64_t total() const { return offset(ranks_); }
  bool AnyNegative() const;

 private:
  int ranks_;
  int64_t each_ = 0;
  const int64_t* counts_ = nullptr;
};

class Communicator {
 public:
  static constexpr int kMaxTag = 65535;

  // Leaves the group. Others that still wait for this rank, or will, get "exited while others wait".
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns when every rank has called it.
  Status Barrier();
  // `bytes` of `root` into `bytes` of every other rank.
  Status Broadcast(std::span<std::byte> bytes, int root);
  // all [size * mine] = every rank's `mine` in rank order. `mine` may be its own place in `all`, else they
  // must not overlap.
  Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all);
  // The same where rank r has counts[r] bytes.
  Status AllGatherV(std::span<const std::byte> mine, std::span<const int64_t> counts,
                    std::span<std::byte> all);
  // Part r of `send` goes to rank r; part r of `receive` comes from rank r. All parts have one size. The two
  // must not overlap.
  Status AllToAll(std::span<const std::byte> send, std::span<std::byte> receive);
  // The same with send_counts[r] bytes to rank r and receive_counts[r] bytes from it.
  Status AllToAllV(std::span<const std::byte> send, std::span<const int64_t> send_counts,
                   std::span<std::byte> receive, std::span<const int64_t> receive_counts);

  // sum [n] = the root of the dyadic tree of a + b over the leaves of `split`, on every rank. my_nodes
  // [split.count(rank), n] are the values of this rank's nodes in tree order; a rank without leaves passes
  // none. The two must not overlap. No leaves at all: zeros.
  Status AllReduceNodes(const LeafSplit& split, std::span<const float> my_nodes, std::span<float> sum);
  // The same sum over n = total of `counts` columns, of which rank r gets counts[r], in rank order: mine
  // [counts[rank]].
  Status ReduceScatterNodes(const LeafSplit& split, std::span<const float> my_nodes,
                            std::span<const int64_t> counts, std::span<float> mine);
  // values [n] = element by element the largest of all ranks. NaN wins (as the quiet NaN 0x7fc00000), -inf is
  // the identity, +0 is above -0.
  Status AllReduceMax(std::span<float> values);

  // To another rank of the group. The message is taken over before Send returns, whether or not the peer
  // receives yet, so ranks may all send before they receive. Messages from one peer with one tag (>= 0)
  // arrive in the order sent, and `bytes` must have the size sent.
  Status Send(std::span<const std::byte> bytes, int peer, int tag);
  Status Receive(std::span<std::byte> bytes, int peer, int tag);

  // Called by every rank: a new group of the ranks that gave the same colour, in the order of `key`, then of
  // rank. Null for a negative colour. Groups may be split again and outlive the one they came from.
  Result<std::unique_ptr<Communicator>> Split(int color, int key);

  // Bytes that this rank has handed in to the group's operations, those of Receive included; of what it hands
  // in to all, once however many take it. Groups split from this one count for themselves.
  int64_t moved_bytes() const { return moved_bytes_; }

  // Poisons the family with `error` and returns what poisons it now, which is another error if one came
  // first.
  std::unexpected<Error> Abort(Error error);
  // The error that poisons the family, if any.
  Status Health() const;

 protected:
  Communicator() = default;

 private:
  // Behind the checks: arguments are sound for this rank alone.
  virtual Status DoBarrier() = 0;
  virtual Status DoBroadcast(std::span<std::byte> bytes, int root) = 0;
  virtual Status DoAllGather(std::span<const std::byte> mine, const Parts& parts,
                             std::span<std::byte> all) = 0;
  virtual Status DoAllToAll(std::span<const std::byte> send, const Parts& send_parts,
                            std::span<std::byte> receive, const Parts& receive_parts) = 0;
  virtual Status DoAllReduceNodes(const LeafSplit& split, std::span<const float> my_nodes,
                                  std::span<float> sum) = 0;
  virtual Status DoReduceScatterNodes(const LeafSplit& split, std::span<const float> my_nodes,
                                      const Parts& counts, std::span<float> mine) = 0;
  virtual Status DoAllReduceMax(std::span<float> values) = 0;
  virtual Status DoSend(std::span<const std::byte> bytes, int peer, int tag) = 0;
  virtual Status DoReceive(std::span<std::byte> bytes, int peer, int tag) = 0;
  virtual Result<std::unique_ptr<Communicator>> DoSplit(int color, int key) = 0;
  // `error` as it came; the rank is named here.
  virtual Error DoAbort(Error error) = 0;
  virtual Status DoHealth() const = 0;

  // Counts, and asks nothing of a group of one.
  void Count(size_t bytes) {
    if (size() > 1) moved_bytes_ += static_cast<int64_t>(bytes);
  }

  Status CheckNodes(std::string_view what, const LeafSplit& split, std::span<const float> my_nodes,
                    int64_t columns);
  Status CheckPeer(std::string_view what, int peer, int tag);
  Status CheckParts(std::string_view what, const Parts& parts, int64_t total);

  int64_t moved_bytes_ = 0;
};

}  // namespace plumbline
