#include "plumbline/pipelines/rank_group.h"

#include <utility>

#include "plumbline/comm/local/local_group.h"

namespace plumbline {
namespace {

// Joins, then obeys; an error poisons the world, where the controller finds it.
void RunOther(std::unique_ptr<Communicator> world, std::shared_ptr<const Decoder> decoder, int threads,
              Isa isa) {
  const Result<std::unique_ptr<Rank>> rank = Rank::Join(std::move(world), std::move(decoder), threads, isa);
  if (rank.has_value()) (void)(*rank)->Serve();
}

}  // namespace

Result<std::unique_ptr<RankGroup>> RankGroup::StartLocal(std::vector<std::shared_ptr<const Decoder>> decoders,
                                                         int threads, Isa isa) {
  std::vector<std::unique_ptr<Communicator>> worlds = MakeLocalGroup(static_cast<int>(decoders.size()));
  std::unique_ptr<RankGroup> group(new RankGroup);
  for (size_t r = 1; r < decoders.size(); ++r)
    group->others_.emplace_back(RunOther, std::move(worlds[r]), decoders[r], threads, isa);
  ASSIGN_OR_RETURN(group->self_, Rank::Join(std::move(worlds[0]), decoders[0], threads, isa));
  return group;
}

Result<std::unique_ptr<RankGroup>> RankGroup::Lead(std::unique_ptr<Communicator> world,
                                                   std::shared_ptr<const Decoder> decoder, int threads,
                                                   Isa isa) {
  std::unique_ptr<RankGroup> group(new RankGroup);
  ASSIGN_OR_RETURN(group->self_, Rank::Join(std::move(world), std::move(decoder), threads, isa));
  return group;
}

RankGroup::~RankGroup() {
  // Where this fails the group is poisoned, and nobody serves any more.
  if (self_ != nullptr) (void)self_->Command(RankCommand::Kind::kStop, 0, {});
  self_.reset();
  for (std::thread& other : others_) other.join();
}

}  // namespace plumbline
