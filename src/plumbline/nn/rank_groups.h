// The groups that one rank talks in, split from the world of all ranks.
#pragma once

#include <memory>

#include "plumbline/nn/rank_context.h"

namespace plumbline {

class RankGroups {
 public:
  // Every rank of `world`, which outlives the groups, calls it at once. `shard` is this rank's.
  static Result<RankGroups> Split(Communicator& world, const DecoderShard& shard);

  RankContext Context(const KernelContext& kernel) const {
    return {.kernel = kernel,
            .shard = shard_,
            .tensor = *tensor_,
            .context = *context_,
            .data = *data_,
            .experts = *experts_,
            .stage = *stage_,
            .pipeline = *pipeline_,
            .world = *world_};
  }

  // Of this rank, in all its groups and the world (Communicator::moved_bytes).
  int64_t MovedBytes() const {
    int64_t bytes = world_->moved_bytes();
    for (const auto* group : {&tensor_, &context_, &data_, &experts_, &stage_, &pipeline_})
      bytes += (*group)->moved_bytes();
    return bytes;
  }

 private:
  DecoderShard shard_;
  Communicator* world_ = nullptr;
  std::unique_ptr<Communicator> tensor_, context_, data_, experts_, stage_, pipeline_;
};

}  // namespace plumbline
