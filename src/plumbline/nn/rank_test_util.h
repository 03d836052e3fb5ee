// Ranks as threads, for tests of modules that are cut over them.
#pragma once

#include <functional>
#include <vector>

#include "plumbline/comm/local/local_group.h"
#include "plumbline/nn/rank_groups.h"

namespace plumbline {

// Calls fn(rank) on every rank of `degrees` at once, with `threads` threads each.
inline Status RunOnRanks(const DecoderConfig& config, const ParallelDegrees& degrees,
                         const std::function<Status(const RankContext&)>& fn, int threads = 1) {
  return RunRanks(degrees.Ranks(), [&](Communicator& world) -> Status {
    ASSIGN_OR_RETURN(const RankGroups groups,
                     RankGroups::Split(world, ShardOf(config, degrees, world.rank())));
    ThreadPool pool(threads);
    return fn(groups.Context({pool, SupportedIsas().back()}));
  });
}

// Every product of degrees that makes `ranks` ranks.
inline std::vector<ParallelDegrees> AllDegrees(int ranks) {
  std::vector<ParallelDegrees> all;
  for (int tp = 1; tp <= ranks; ++tp) {
    for (int dp = 1; tp * dp <= ranks; ++dp) {
      for (int pp = 1; tp * dp * pp <= ranks; ++pp) {
        const int cp = ranks / (tp * dp * pp);
        if (tp * dp * pp * cp == ranks) all.push_back({.tp = tp, .dp = dp, .pp = pp, .cp = cp});
      }
    }
  }
  return all;
}

}  // namespace plumbline
