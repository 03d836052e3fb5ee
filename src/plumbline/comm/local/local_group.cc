#include "plumbline/comm/local/local_group.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <tuple>
#include <utility>

#include "plumbline/base/check.h"
#include "plumbline/comm/local/local_communicator.h"

namespace plumbline {

LocalState::LocalState(std::shared_ptr<LocalFamily> the_family, std::vector<int> the_members)
    : family(std::move(the_family)),
      members(std::move(the_members)),
      slots(members.size()),
      mailboxes(members.size() * members.size()) {
  for (Slot& slot : slots) {
    for (int parity = 0; parity < 2; ++parity) {
      slot.counts[parity] = std::make_unique<int64_t[]>(members.size());
      slot.staging[parity] = std::make_unique_for_overwrite<std::byte[]>(kStagedBytes);
    }
  }
}

// The members agree on who is in the group by what all of them published; the first to come makes it. It
// lives until the barrier at least, by when every member has it.
Result<std::unique_ptr<Communicator>> LocalCommunicator::DoSplit(int color, int key) {
  const int mine[2] = {color, key};
  std::vector<std::tuple<int, int>> order;  // key, rank
  RETURN_IF_ERROR(Exchange(
      {.what = Collective::kSplit, .data = std::as_bytes(std::span(mine))}, nullptr,
      [](int /*peer*/) { return true; },
      [&] {
        for (int peer = 0; peer < size(); ++peer) {
          const auto* theirs = reinterpret_cast<const int*>(Peer(peer).data.data());
          if (theirs[0] == color) order.emplace_back(theirs[1], peer);
        }
      }));
  std::shared_ptr<LocalState> state;
  int rank = 0;
  if (color >= 0) {
    std::sort(order.begin(), order.end());
    std::vector<int> members;
    for (const auto& [their_key, peer] : order) {
      if (peer == rank_) rank = static_cast<int>(members.size());
      members.push_back(state_->members[peer]);
    }
    LocalFamily& family = *state_->family;
    const std::lock_guard lock(family.mutex);
    const LocalFamily::Key place = {state_.get(), operation_, color};
    LocalFamily::Making& making = family.making[place];
    state = making.state.lock();
    if (state == nullptr) state = std::make_shared<LocalState>(state_->family, std::move(members));
    making.state = state;
    if (++making.fetched == state->ranks()) family.making.erase(place);
  }
  RETURN_IF_ERROR(DoBarrier());
  if (state == nullptr) return nullptr;
  return std::make_unique<LocalCommunicator>(std::move(state), rank);
}

std::vector<std::unique_ptr<Communicator>> MakeLocalGroup(int ranks) {
  PLUMBLINE_CHECK(ranks >= 1);
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  const auto state = std::make_shared<LocalState>(std::make_shared<LocalFamily>(ranks), std::move(members));
  std::vector<std::unique_ptr<Communicator>> group;
  for (int rank = 0; rank < ranks; ++rank) group.push_back(std::make_unique<LocalCommunicator>(state, rank));
  return group;
}

Status RunRanks(int ranks, const std::function<Status(Communicator&)>& rank) {
  std::vector<std::unique_ptr<Communicator>> group = MakeLocalGroup(ranks);
  std::vector<Status> health(ranks);
  const auto run = [&](int index) {
    std::unique_ptr<Communicator> communicator = std::move(group[index]);
    if (Status status = rank(*communicator); !status.has_value()) communicator->Abort(status.error());
    health[index] = communicator->Health();
  };
  std::vector<std::thread> threads;
  for (int index = 1; index < ranks; ++index) threads.emplace_back(run, index);
  run(0);
  for (std::thread& thread : threads) thread.join();
  // A rank that returned before the error came knows nothing of it.
  for (Status& status : health) RETURN_IF_ERROR(status);
  return {};
}

}  // namespace plumbline
