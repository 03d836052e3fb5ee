#include "plumbline/comm/communicator.h"

#include <utility>

namespace plumbline {

int64_t Parts::offset(int rank) const {
  if (counts_ == nullptr) return rank * each_;
  int64_t offset = 0;
  for (int r = 0; r < rank; ++r) offset += counts_[r];
  return offset;
}

bool Parts::AnyNegative() const {
  for (int r = 0; r < ranks_; ++r) {
    if (count(r) < 0) return true;
  }
  return false;
}

Status Communicator::CheckParts(std::string_view what, const Parts& parts, int64_t total) {
  if (parts.ranks() != size()) {
    return Abort(InvalidInput("{}: got {} counts, want {}", what, parts.ranks(), size()).error());
  }
  if (parts.AnyNegative()) return Abort(InvalidInput("{}: got a negative count", what).error());
  if (parts.total() != total) {
    return Abort(InvalidInput("{}: got room for {}, want {}", what, total, parts.total()).error());
  }
  return {};
}

Status Communicator::CheckPeer(std::string_view what, int peer, int tag) {
  if (peer < 0 || peer >= size() || peer == rank()) {
    return Abort(
        InvalidInput("{}: got peer {}, want another rank of {} (rank {})", what, peer, size(), rank())
            .error());
  }
  if (tag < 0 || tag > kMaxTag) {
    return Abort(InvalidInput("{}: got tag {}, want 0 to {}", what, tag, kMaxTag).error());
  }
  return {};
}

Status Communicator::CheckNodes(std::string_view what, const LeafSplit& split,
                                std::span<const float> my_nodes, int64_t columns) {
  if (split.ranks() != size()) {
    return Abort(
        InvalidInput("{}: got leaves split over {} ranks, want {}", what, split.ranks(), size()).error());
  }
  const int64_t want = split.count(rank()) * columns;
  if (static_cast<int64_t>(my_nodes.size()) != want) {
    return Abort(InvalidInput("{}: got {} floats of nodes, want {} x {}", what, my_nodes.size(),
                              split.count(rank()), columns)
                     .error());
  }
  return {};
}

Status Communicator::Barrier() { return DoBarrier(); }

Status Communicator::Broadcast(std::span<std::byte> bytes, int root) {
  if (root < 0 || root >= size()) {
    return Abort(InvalidInput("broadcast: got root {}, want 0 to {}", root, size() - 1).error());
  }
  if (root == rank()) Count(bytes.size());
  return DoBroadcast(bytes, root);
}

Status Communicator::AllGather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const Parts parts(size(), static_cast<int64_t>(mine.size()));
  RETURN_IF_ERROR(CheckParts("all-gather", parts, static_cast<int64_t>(all.size())));
  Count(mine.size());
  return DoAllGather(mine, parts, all);
}

Status Communicator::AllGatherV(std::span<const std::byte> mine, std::span<const int64_t> counts,
                                std::span<std::byte> all) {
  const Parts parts(counts);
  RETURN_IF_ERROR(CheckParts("all-gather", parts, static_cast<int64_t>(all.size())));
  if (parts.count(rank()) != static_cast<int64_t>(mine.size())) {
    return Abort(InvalidInput("all-gather: got {} bytes, want {}", mine.size(), parts.count(rank())).error());
  }
  Count(mine.size());
  return DoAllGather(mine, parts, all);
}

Status Communicator::AllToAll(std::span<const std::byte> send, std::span<std::byte> receive) {
  const Parts parts(size(), static_cast<int64_t>(send.size()) / size());
  RETURN_IF_ERROR(CheckParts("all-to-all, sent", parts, static_cast<int64_t>(send.size())));
  RETURN_IF_ERROR(CheckParts("all-to-all, received", parts, static_cast<int64_t>(receive.size())));
  Count(send.size());
  return DoAllToAll(send, parts, receive, parts);
}

Status Communicator::AllToAllV(std::span<const std::byte> send, std::span<const int64_t> send_counts,
                               std::span<std::byte> receive, std::span<const int64_t> receive_counts) {
  const Parts send_parts(send_counts);
  const Parts receive_parts(receive_counts);
  RETURN_IF_ERROR(CheckParts("all-to-all, sent", send_parts, static_cast<int64_t>(send.size())));
  RETURN_IF_ERROR(CheckParts("all-to-all, received", receive_parts, static_cast<int64_t>(receive.size())));
  Count(send.size());
  return DoAllToAll(send, send_parts, receive, receive_parts);
}

Status Communicator::AllReduceNodes(const LeafSplit& split, std::span<const float> my_nodes,
                                    std::span<float> sum) {
  RETURN_IF_ERROR(CheckNodes("all-reduce", split, my_nodes, static_cast<int64_t>(sum.size())));
  Count(my_nodes.size_bytes());
  return DoAllReduceNodes(split, my_nodes, sum);
}

Status Communicator::ReduceScatterNodes(const LeafSplit& split, std::span<const float> my_nodes,
                                        std::span<const int64_t> counts, std::span<float> mine) {
  const Parts parts(counts);
  RETURN_IF_ERROR(CheckParts("reduce-scatter", parts, parts.total()));
  RETURN_IF_ERROR(CheckNodes("reduce-scatter", split, my_nodes, parts.total()));
  if (parts.count(rank()) != static_cast<int64_t>(mine.size())) {
    return Abort(
        InvalidInput("reduce-scatter: got room for {}, want {}", mine.size(), parts.count(rank())).error());
  }
  Count(my_nodes.size_bytes());
  return DoReduceScatterNodes(split, my_nodes, parts, mine);
}

Status Communicator::AllReduceMax(std::span<float> values) {
  Count(values.size_bytes());
  return DoAllReduceMax(values);
}

Status Communicator::Send(std::span<const std::byte> bytes, int peer, int tag) {
  RETURN_IF_ERROR(CheckPeer("send", peer, tag));
  Count(bytes.size());
  return DoSend(bytes, peer, tag);
}

Status Communicator::Receive(std::span<std::byte> bytes, int peer, int tag) {
  RETURN_IF_ERROR(CheckPeer("receive", peer, tag));
  Count(bytes.size());
  return DoReceive(bytes, peer, tag);
}

Result<std::unique_ptr<Communicator>> Communicator::Split(int color, int key) { return DoSplit(color, key); }

std::unexpected<Error> Communicator::Abort(Error error) { return std::unexpected(DoAbort(std::move(error))); }

Status Communicator::Health() const { return DoHealth(); }

}  // namespace plumbline
