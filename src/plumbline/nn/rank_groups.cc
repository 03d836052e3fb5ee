#include "plumbline/nn/rank_groups.h"

#include "plumbline/base/check.h"

namespace plumbline {

Result<RankGroups> RankGroups::Split(Communicator& world, const DecoderShard& shard) {
  const ParallelDegrees& d = shard.degrees;
  const RankCoordinates& at = shard.at;
  PLUMBLINE_CHECK(world.size() == d.Ranks() && world.rank() == RankOf(d, at));
  RankGroups groups;
  groups.shard_ = shard;
  groups.world_ = &world;
  // Members of a group differ in one coordinate; the colour numbers the others.
  const int replica = at.stage * d.dp + at.replica, context = at.stage * d.cp + at.context;
  ASSIGN_OR_RETURN(groups.tensor_, world.Split(replica * d.cp + at.context, at.tensor));
  ASSIGN_OR_RETURN(groups.context_, world.Split(replica * d.tp + at.tensor, at.context));
  ASSIGN_OR_RETURN(groups.data_, world.Split(context * d.tp + at.tensor, at.replica));
  const int plane = d.ep > 1 ? at.stage * d.cp + at.context : world.rank();
  ASSIGN_OR_RETURN(groups.experts_, world.Split(plane, shard.ExpertRank()));
  ASSIGN_OR_RETURN(groups.stage_, world.Split(at.stage, shard.StageRank()));
  ASSIGN_OR_RETURN(groups.pipeline_, world.Split(shard.StageRank(), at.stage));
  return groups;
}

}  // namespace plumbline
