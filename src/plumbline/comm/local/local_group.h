// Ranks that are threads of one process.
//
// A collective publishes where a rank's bytes lie, raises the rank's signal and waits for the signals of the
// others, which then read; nothing is locked. Messages of up to kStagedBytes are copied into buffers of the
// group first, so nobody needs to know when they have been read; larger ones are read in place and cost a
// second signal.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/comm/communicator.h"

namespace plumbline {

// One communicator a rank, each for a thread of its own. `ranks` >= 1.
std::vector<std::unique_ptr<Communicator>> MakeLocalGroup(int ranks);

// Calls rank(communicator) for every rank, rank 0 on this thread and the others on threads of their own, and
// returns when all have returned: the error that poisoned the group, if one did. An error that a rank returns
// poisons it.
Status RunRanks(int ranks, const std::function<Status(Communicator&)>& rank);

}  // namespace plumbline
