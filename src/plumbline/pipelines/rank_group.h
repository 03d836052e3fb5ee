// All ranks of a run as the controller sees them.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "plumbline/pipelines/rank.h"

namespace plumbline {

class RankGroup {
 public:
  // Ranks that are threads of this process, one a decoder, in rank order; rank 0 is the caller's thread.
  static Result<std::unique_ptr<RankGroup>> StartLocal(std::vector<std::shared_ptr<const Decoder>> decoders,
                                                       int threads, Isa isa);
  // This process is rank 0 of `world`; the others are in Rank::Serve.
  static Result<std::unique_ptr<RankGroup>> Lead(std::unique_ptr<Communicator> world,
                                                 std::shared_ptr<const Decoder> decoder, int threads,
                                                 Isa isa);
  ~RankGroup();  // stops the others

  Rank& self() { return *self_; }
  int64_t NextEngine() { return next_engine_++; }

 private:
  RankGroup() = default;

  std::unique_ptr<Rank> self_;
  std::vector<std::thread> others_;
  int64_t next_engine_ = 0;
};

}  // namespace plumbline
