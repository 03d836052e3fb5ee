// What a module needs from its rank: kernels' context and the groups it talks in. Passed by reference;
// several ranks can live in one process.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "plumbline/comm/communicator.h"
#include "plumbline/kernels/kernel_context.h"
#include "plumbline/nn/shard.h"

namespace plumbline {

struct RankContext {
  KernelContext kernel;
  DecoderShard shard;
  Communicator& tensor;    // ranks that hold the other parts of this one's layers, for the same sequences
  Communicator& context;   // ranks that hold the other KV pages of the same heads
  Communicator& data;      // ranks that do the same for other sequences, in replica order
  Communicator& experts;   // ranks that hold the other experts, by ExpertRank(); this one alone where ep is 1
  Communicator& stage;     // all ranks of the stage, numbered by StageRank()
  Communicator& pipeline;  // ranks that do the same for other layers, in the order of stages
  Communicator& world;     // all ranks
};

// all = every rank's elements in rank order, of which rank r brings counts[r], at most kMaxRanks ranks.
template <typename T>
Status AllGatherArrays(Communicator& group, std::span<const T> mine, std::span<const int64_t> counts,
                       std::span<T> all) {
  std::array<int64_t, kMaxRanks> bytes;
  for (size_t r = 0; r < counts.size(); ++r) bytes[r] = counts[r] * static_cast<int64_t>(sizeof(T));
  return group.AllGatherV(std::as_bytes(mine), std::span(bytes).first(counts.size()),
                          std::as_writable_bytes(all));
}

inline Status AllGatherFloats(Communicator& group, std::span<const float> mine,
                              std::span<const int64_t> counts, std::span<float> all) {
  return AllGatherArrays<float>(group, mine, counts, all);
}

}  // namespace plumbline
