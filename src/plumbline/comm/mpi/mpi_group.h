// Ranks that are processes of one MPI job (docs/parallel.md). mpi_group.cc where MPI was found,
// no_mpi_group.cc else.
#pragma once

#include <memory>

#include "plumbline/base/status.h"
#include "plumbline/comm/communicator.h"

namespace plumbline {

// One a process, from its start to its end. All calls, those of its groups too, come from the thread that
// started it.
class MpiSession {
 public:
  // Ends MPI for this process: with the others, or at once where one of them is dead.
  virtual ~MpiSession() = default;
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Called by every process: a group of them all, first of a family of its own. Ends before the session.
  virtual Result<std::unique_ptr<Communicator>> MakeGroup() = 0;

 protected:
  MpiSession() = default;
};

// Once a process.
Result<std::unique_ptr<MpiSession>> StartMpi();

}  // namespace plumbline
