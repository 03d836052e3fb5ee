// Ranks as processes: `--launcher mpi` starts the same command line again under mpirun, once a rank.
#pragma once

#include <functional>

#include "plumbline/base/status.h"
#include "plumbline/cli/options.h"

namespace plumbline::cli {

// Whether mpirun started this process, and as which rank (0 where it did not).
bool StartedByMpirun();
int MpirunRank();

// Runs `argv` under mpirun with as many processes as the options have ranks, and waits for it. The exit code
// to end with: 0, 2 where the ranks said so, else 1. SIGINT and SIGTERM go on to mpirun, which ends with this
// process.
Result<int> RunUnderMpirun(const RunOptions& options, char** argv);

// Runs a rank in a child of the process that mpirun started, and gives its exit code, or 1 where it was
// killed: of a process of its own that is killed mpirun would make 128 + the signal. Signals go on to the
// child, which does not outlive this process.
Result<int> RunInChild(const std::function<int()>& rank);

// Rank 1 and up: loads its part of the model and serves rank 0 until that is done.
Status ServeMpiRank(const RunOptions& options);

}  // namespace plumbline::cli
