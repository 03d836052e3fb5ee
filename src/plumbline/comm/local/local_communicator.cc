#include "plumbline/comm/local/local_communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace plumbline {
namespace {

constexpr const char* kNames[] = {"barrier",    "broadcast",      "all-gather", "all-to-all",
                                  "all-reduce", "reduce-scatter", "maximum",    "split"};

}  // namespace

LocalCommunicator::LocalCommunicator(std::shared_ptr<LocalState> state, int rank)
    : state_(std::move(state)), rank_(rank) {}

LocalCommunicator::~LocalCommunicator() { mine().left.store(true, std::memory_order_release); }

Error LocalCommunicator::DoAbort(Error error) {
  poison().Set(state_->members[rank_], std::move(error));
  return poison().error();
}

void LocalCommunicator::Publish(const Published& published, const Parts* counts) {
  const int64_t parity = ++operation_ & 1;
  Slot& slot = mine();
  Published& place = slot.published[parity];
  place = published;
  if (published.data.size() <= kStagedBytes) {
    std::copy_n(published.data.data(), published.data.size(), slot.staging[parity].get());
    place.data = {slot.staging[parity].get(), published.data.size()};
  }
  place.in_place = published.data.size() > kStagedBytes || published.result != nullptr;
  for (int peer = 0; counts != nullptr && peer < size(); ++peer) {
    slot.counts[parity][peer] = counts->count(peer);
  }
}

Status LocalCommunicator::Round() {
  mine().signal.Raise(++round_);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) RETURN_IF_ERROR(Await(peer));
  }
  return {};
}

Status LocalCommunicator::Await(int peer) {
  Slot& slot = state_->slots[peer];
  const auto give_up = [&] { return poison().set() || slot.left.load(std::memory_order_acquire); };
  if (slot.signal.Wait(round_, state_->family->pauses, give_up)) return {};
  poison().Set(state_->members[peer], Failed("exited while others wait").error());
  return poison().status();
}

void LocalCommunicator::AwaitReaders() const {
  for (const Slot& slot : state_->slots) {
    while (slot.reading.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  }
}

Status LocalCommunicator::Mismatch(int peer) {
  const Published& want = Peer(rank_);
  const Published& got = Peer(peer);
  return Abort(
      InvalidInput("collectives do not agree: got {} of {} bytes from rank {}, want what fits {} of {} bytes",
                   kNames[static_cast<int>(got.what)], got.data.size(), state_->members[peer],
                   kNames[static_cast<int>(want.what)], want.data.size())
          .error());
}

Status LocalCommunicator::DoBarrier() {
  return Exchange(
      {.what = Collective::kBarrier}, nullptr, [](int) { return true; }, [] {});
}

Status LocalCommunicator::DoBroadcast(std::span<std::byte> bytes, int root) {
  const std::span<const std::byte> data = rank_ == root ? bytes : bytes.first(0);
  return Exchange(
      {.what = Collective::kBroadcast,
       .root = root,
       .columns = static_cast<int64_t>(bytes.size()),
       .data = data},
      nullptr,
      [&](int peer) {
        return Peer(peer).root == root && Peer(peer).columns == static_cast<int64_t>(bytes.size());
      },
      [&] {
        if (rank_ != root) std::copy_n(Peer(root).data.data(), bytes.size(), bytes.data());
      });
}

Status LocalCommunicator::DoAllGather(std::span<const std::byte> mine, const Parts& parts,
                                      std::span<std::byte> all) {
  return Exchange(
      {.what = Collective::kAllGather, .data = mine}, nullptr,
      [&](int peer) { return static_cast<int64_t>(Peer(peer).data.size()) == parts.count(peer); },
      [&] {
        std::byte* to = all.data();
        for (int peer = 0; peer < size(); to += parts.count(peer), ++peer) {
          const auto* from = peer == rank_ ? mine.data() : Peer(peer).data.data();
          if (from != to) std::copy_n(from, parts.count(peer), to);
        }
      });
}

Status LocalCommunicator::DoAllToAll(std::span<const std::byte> send, const Parts& send_parts,
                                     std::span<std::byte> receive, const Parts& receive_parts) {
  const auto counts = [&](int peer) { return state_->slots[peer].counts[operation_ & 1].get(); };
  return Exchange(
      {.what = Collective::kAllToAll, .data = send}, &send_parts,
      [&](int peer) { return counts(peer)[rank_] == receive_parts.count(peer); },
      [&] {
        std::byte* to = receive.data();
        for (int peer = 0; peer < size(); to += receive_parts.count(peer), ++peer) {
          const int64_t offset = std::accumulate(counts(peer), counts(peer) + rank_, int64_t{0});
          std::copy_n(Peer(peer).data.data() + offset, receive_parts.count(peer), to);
        }
      });
}

Status LocalCommunicator::DoSend(std::span<const std::byte> bytes, int peer, int tag) {
  if (poison().set()) return poison().status();
  state_->mailbox(rank_, peer).Put(bytes, tag);
  return {};
}

Status LocalCommunicator::DoReceive(std::span<std::byte> bytes, int peer, int tag) {
  if (poison().set()) return poison().status();
  Mailbox& mailbox = state_->mailbox(peer, rank_);
  const auto give_up = [&] {
    return poison().set() || state_->slots[peer].left.load(std::memory_order_acquire);
  };
  Mailbox::Packet* packet = mailbox.Take(tag);
  for (; packet == nullptr; packet = mailbox.Take(tag)) {
    if (mailbox.Wait(state_->family->pauses, give_up)) continue;
    poison().Set(state_->members[peer], Failed("exited while others wait").error());
    return poison().status();
  }
  const size_t size = packet->size;
  if (size == bytes.size()) std::copy_n(packet->bytes.get(), size, bytes.data());
  mailbox.GiveBack(packet);
  if (size == bytes.size()) return {};
  return Abort(InvalidInput("receive: got {} bytes, want {} (from rank {}, tag {})", size, bytes.size(),
                            state_->members[peer], tag)
                   .error());
}

}  // namespace plumbline
