// What the collectives of a group under MPI send and what they make of what comes.
#include <algorithm>
#include <tuple>
#include <utility>

#include "plumbline/base/float_env.h"
#include "plumbline/comm/float_max.h"
#include "plumbline/comm/mpi/mpi_communicator.h"

namespace plumbline {
namespace {

// From here on each rank adds a share of the columns for all: less to move, one more round of messages. Two
// ranks move the same bytes either way.
constexpr size_t kShareBytes = 32768;

}  // namespace

Status MpiCommunicator::DoBarrier() {
  std::ranges::fill(want_, 0);
  return Share({.what = What::kBarrier}, {});
}

Status MpiCommunicator::DoBroadcast(std::span<std::byte> bytes, int root) {
  const auto length = static_cast<int64_t>(bytes.size());
  std::ranges::fill(want_, 0);
  if (rank_ != root) want_[root] = length;
  const Header header = {.what = What::kBroadcast, .root = root, .columns = length};
  RETURN_IF_ERROR(Share(header, rank_ == root ? bytes : bytes.first(0)));
  if (rank_ != root) std::copy_n(From(root), length, bytes.data());
  return {};
}

Status MpiCommunicator::DoAllGather(std::span<const std::byte> mine, const Parts& parts,
                                    std::span<std::byte> all) {
  for (int peer = 0; peer < size(); ++peer) want_[peer] = parts.count(peer);
  RETURN_IF_ERROR(Share({.what = What::kAllGather}, mine));
  std::byte* to = all.data();
  for (int peer = 0; peer < size(); to += parts.count(peer), ++peer) {
    const std::byte* from = peer == rank_ ? mine.data() : From(peer);
    if (from != to) std::copy_n(from, parts.count(peer), to);
  }
  return {};
}

Status MpiCommunicator::DoAllToAll(std::span<const std::byte> send, const Parts& send_parts,
                                   std::span<std::byte> receive, const Parts& receive_parts) {
  for (int peer = 0; peer < size(); ++peer) {
    send_[peer] = send_parts.count(peer);
    want_[peer] = receive_parts.count(peer);
  }
  if (send_[rank_] != want_[rank_]) {
    return Abort(
        InvalidInput("all-to-all: got {} bytes from itself, want {}", send_[rank_], want_[rank_]).error());
  }
  RETURN_IF_ERROR(Begin({.what = What::kAllToAll}, false));
  const std::byte* from = send.data();
  for (int peer = 0; peer < size(); from += send_parts.count(peer), ++peer) {
    if (peer != rank_) std::copy_n(from, send_[peer], To(peer));
  }
  RETURN_IF_ERROR(Finish());
  const std::byte* own = send.data() + send_parts.offset(rank_);
  std::byte* to = receive.data();
  for (int peer = 0; peer < size(); to += receive_parts.count(peer), ++peer) {
    std::copy_n(peer == rank_ ? own : From(peer), receive_parts.count(peer), to);
  }
  return {};
}

void MpiCommunicator::SumColumns(const LeafSplit& split, std::span<const float> my_nodes, int64_t columns,
                                 int64_t begin, int64_t end, float* out) {
  rows_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    const bool own = peer == rank_;
    const auto* nodes = own ? my_nodes.data() + begin : reinterpret_cast<const float*>(From(peer));
    const int64_t stride = own ? columns : end - begin;
    for (int64_t i = 0; i < split.count(peer); ++i) rows_.push_back(nodes + i * stride);
  }
  const ScopedFloatEnv env;
  SumNodes(split, rows_, end - begin, out);
}

Status MpiCommunicator::ScatterSums(const Header& header, const LeafSplit& split,
                                    std::span<const float> my_nodes, std::span<const int64_t> offsets,
                                    float* out) {
  const int64_t columns = offsets.back();
  const int64_t begin = offsets[rank_];
  const int64_t end = offsets[rank_ + 1];
  for (int peer = 0; peer < size(); ++peer) {
    send_[peer] = split.count(rank_) * (offsets[peer + 1] - offsets[peer]) * 4;
    want_[peer] = split.count(peer) * (end - begin) * 4;
  }
  RETURN_IF_ERROR(Begin(header, false));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    auto* to = reinterpret_cast<float*>(To(peer));
    for (int64_t i = 0; i < split.count(rank_); ++i) {
      to = std::copy(my_nodes.begin() + i * columns + offsets[peer],
                     my_nodes.begin() + i * columns + offsets[peer + 1], to);
    }
  }
  RETURN_IF_ERROR(Finish());
  SumColumns(split, my_nodes, columns, begin, end, out);
  return {};
}

Status MpiCommunicator::DoAllReduceNodes(const LeafSplit& split, std::span<const float> my_nodes,
                                         std::span<float> sum) {
  const auto columns = static_cast<int64_t>(sum.size());
  if (size() <= 2 || sum.size_bytes() < kShareBytes) {
    for (int peer = 0; peer < size(); ++peer) want_[peer] = split.count(peer) * columns * 4;
    RETURN_IF_ERROR(Share({.what = What::kSum, .columns = columns}, std::as_bytes(my_nodes)));
    SumColumns(split, my_nodes, columns, 0, columns, sum.data());
    return {};
  }
  share_offsets_.clear();
  for (int peer = 0; peer <= size(); ++peer) share_offsets_.push_back(columns * peer / size());
  const auto bytes = [&](int peer) { return (share_offsets_[peer + 1] - share_offsets_[peer]) * 4; };
  RETURN_IF_ERROR(ScatterSums({.what = What::kShares, .columns = columns}, split, my_nodes, share_offsets_,
                              sum.data() + share_offsets_[rank_]));
  for (int peer = 0; peer < size(); ++peer) want_[peer] = bytes(peer);
  const auto all = std::as_writable_bytes(sum);
  RETURN_IF_ERROR(Share({.what = What::kAllGather}, all.subspan(share_offsets_[rank_] * 4, bytes(rank_))));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) std::copy_n(From(peer), bytes(peer), all.data() + share_offsets_[peer] * 4);
  }
  return {};
}

Status MpiCommunicator::DoReduceScatterNodes(const LeafSplit& split, std::span<const float> my_nodes,
                                             const Parts& counts, std::span<float> mine) {
  share_offsets_.assign(1, 0);
  uint64_t layout = 0;
  for (int peer = 0; peer < size(); ++peer) {
    share_offsets_.push_back(share_offsets_.back() + counts.count(peer));
    layout = layout * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(counts.count(peer)) + 1;
  }
  const Header header = {.what = What::kScatter, .columns = share_offsets_.back(), .layout = layout};
  return ScatterSums(header, split, my_nodes, share_offsets_, mine.data());
}

Status MpiCommunicator::DoAllReduceMax(std::span<float> values) {
  std::ranges::fill(want_, static_cast<int64_t>(values.size_bytes()));
  const Header header = {.what = What::kMax, .columns = static_cast<int64_t>(values.size())};
  RETURN_IF_ERROR(Share(header, std::as_bytes(values)));
  for (size_t i = 0; i < values.size(); ++i) {
    int32_t highest = OrderedBits(values[i]);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      highest = std::max(highest, OrderedBits(reinterpret_cast<const float*>(From(peer))[i]));
    }
    values[i] = FromOrderedBits(highest);
  }
  return {};
}

Result<int> MpiCommunicator::AgreeOnContext(int color, int key, std::vector<int>* order) {
  const int mine[3] = {color, key, core_->next_context};
  std::ranges::fill(want_, static_cast<int64_t>(sizeof(mine)));
  RETURN_IF_ERROR(Share({.what = What::kSplit}, std::as_bytes(std::span(mine))));
  int context = core_->next_context;
  std::vector<std::tuple<int, int>> by_key;  // key, rank
  for (int peer = 0; peer < size(); ++peer) {
    const int* theirs = peer == rank_ ? mine : reinterpret_cast<const int*>(From(peer));
    context = std::max(context, theirs[2]);
    if (theirs[0] == color) by_key.emplace_back(theirs[1], peer);
  }
  if (context >= kMaxContexts) {
    return Abort(
        InvalidInput("mpi: got more than {} groups in the life of a process", kMaxContexts - 1).error());
  }
  core_->next_context = context + 1;
  std::ranges::sort(by_key);
  for (const auto& [their_key, peer] : by_key) order->push_back(peer);
  return context;
}

Result<std::unique_ptr<Communicator>> MpiCommunicator::DoSplit(int color, int key) {
  std::vector<int> order;
  ASSIGN_OR_RETURN(const int context, AgreeOnContext(color, key, &order));
  if (color < 0) return nullptr;
  const auto rank = static_cast<int>(std::ranges::find(order, rank_) - order.begin());
  for (int& member : order) member = members_[member];
  return std::make_unique<MpiCommunicator>(core_, family_, context, std::move(order), rank);
}

}  // namespace plumbline
