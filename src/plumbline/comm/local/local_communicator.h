// One rank's end of a local group.
#pragma once

#include <memory>
#include <vector>

#include "plumbline/comm/communicator.h"
#include "plumbline/comm/local/local_state.h"

namespace plumbline {

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalState> state, int rank);
  ~LocalCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return state_->ranks(); }

 private:
  Status DoBarrier() override;
  Status DoBroadcast(std::span<std::byte> bytes, int root) override;
  Status DoAllGather(std::span<const std::byte> mine, const Parts& parts, std::span<std::byte> all) override;
  Status DoAllToAll(std::span<const std::byte> send, const Parts& send_parts, std::span<std::byte> receive,
                    const Parts& receive_parts) override;
  Status DoAllReduceNodes(const LeafSplit& split, std::span<const float> my_nodes,
                          std::span<float> sum) override;
  Status DoReduceScatterNodes(const LeafSplit& split, std::span<const float> my_nodes, const Parts& counts,
                              std::span<float> mine) override;
  Status DoAllReduceMax(std::span<float> values) override;
  Status DoSend(std::span<const std::byte> bytes, int peer, int tag) override;
  Status DoReceive(std::span<std::byte> bytes, int peer, int tag) override;
  Result<std::unique_ptr<Communicator>> DoSplit(int color, int key) override;
  Error DoAbort(Error error) override;
  Status DoHealth() const override { return poison().status(); }

  Poison& poison() const { return state_->family->poison; }
  Slot& mine() const { return state_->slots[rank_]; }
  // What `peer` brought to the operation under way.
  const Published& Peer(int peer) const { return state_->slots[peer].published[operation_ & 1]; }

  // One operation: publish, wait for all, run the phases (which read what the others published and write what
  // is this rank's) with all waiting for all between them, and, where anything was published in place, wait
  // until all are done. fits(peer) says whether what the peer brought agrees with what this rank did.
  template <typename Fits, typename... Phases>
  Status Exchange(const Published& published, const Parts* counts, Fits&& fits, Phases&&... phases);
  void Publish(const Published& published, const Parts* counts);
  // Raises this rank's signal and waits for the others'.
  Status Round();
  Status Await(int peer);
  // Runs phase() on memory of other ranks' callers, unless the family is poisoned: then it may be gone.
  template <typename Phase>
  Status Guarded(Phase&& phase);
  // After an error: until no rank reads this one's memory any more.
  void AwaitReaders() const;
  Status Mismatch(int peer);

  // Lists the values of all nodes from `column` on for SumNodes.
  void ListRows(const LeafSplit& split, int64_t columns, int64_t column);
  // The columns that this rank reduces for all where the work is shared.
  int64_t ShareBegin(int64_t columns, int rank) const;
  void MaxOfPeers(int64_t begin, int64_t end, float* values) const;
  void GatherShares(int64_t columns, float* result) const;

  const std::shared_ptr<LocalState> state_;
  const int rank_;
  uint64_t operation_ = 0;
  uint32_t round_ = 0;
  std::vector<const float*> rows_;
};

template <typename Fits, typename... Phases>
Status LocalCommunicator::Exchange(const Published& published, const Parts* counts, Fits&& fits,
                                   Phases&&... phases) {
  if (poison().set()) return poison().status();
  Publish(published, counts);
  Status status = Round();
  bool in_place = false;
  for (int peer = 0; peer < size() && status.has_value(); ++peer) {
    if (Peer(peer).what != published.what || !fits(peer)) status = Mismatch(peer);
    in_place = in_place || Peer(peer).in_place;
  }
  int done = 0;
  const auto run = [&](auto& phase) {
    if (status.has_value() && done++ > 0) status = Round();
    if (!status.has_value()) return;
    if (in_place) {
      status = Guarded(phase);
    } else {
      phase();
    }
  };
  (run(phases), ...);
  if (status.has_value() && in_place) status = Round();
  if (!status.has_value()) AwaitReaders();
  return status;
}

template <typename Phase>
Status LocalCommunicator::Guarded(Phase&& phase) {
  mine().reading.store(1, std::memory_order_seq_cst);
  const bool poisoned = poison().set();
  if (!poisoned) phase();
  mine().reading.store(0, std::memory_order_seq_cst);
  return poison().status();
}

}  // namespace plumbline
