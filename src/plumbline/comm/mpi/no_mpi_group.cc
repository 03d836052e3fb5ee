#include "plumbline/comm/mpi/mpi_group.h"

namespace plumbline {

Result<std::unique_ptr<MpiSession>> StartMpi() {
  return InvalidInput("mpi: got a build without MPI, want one with it");
}

}  // namespace plumbline
