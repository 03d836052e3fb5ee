#include "plumbline/comm/mpi/mpi_group.h"

#include <unistd.h>

#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "plumbline/comm/mpi/mpi_communicator.h"
#include "plumbline/comm/mpi/mpi_core.h"

namespace plumbline {
namespace {

class OpenMpiSession final : public MpiSession {
 public:
  explicit OpenMpiSession(std::unique_ptr<MpiCore> core) : core_(std::move(core)) {
    base_ = std::make_unique<MpiCommunicator>(core_.get(), 0, 0, Everyone(), core_->rank);
  }

  ~OpenMpiSession() override {
    base_.reset();
    if (core_->side->lost()) {
      // MPI would wait for the dead. What it may still write to stays until the process ends.
      static MpiCore* const kept = core_.release();
      kept->side.reset();
      return;
    }
    core_->side->Goodbye();
    MPI_Comm_free(&core_->comm);
    MPI_Finalize();
  }

  int rank() const override { return core_->rank; }
  int size() const override { return core_->size; }

  Result<std::unique_ptr<Communicator>> MakeGroup() override {
    std::vector<int> everyone;
    ASSIGN_OR_RETURN(const int context, base_->AgreeOnContext(0, core_->rank, &everyone));
    return std::make_unique<MpiCommunicator>(core_.get(), ++core_->families, context, Everyone(),
                                             core_->rank);
  }

 private:
  std::vector<int> Everyone() const {
    std::vector<int> ranks(core_->size);
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  std::unique_ptr<MpiCore> core_;
  std::unique_ptr<MpiCommunicator> base_;
};

bool OneHost(int ranks) {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int here = 0;
  MPI_Comm_size(host, &here);
  MPI_Comm_free(&host);
  return here == ranks;
}

Result<std::unique_ptr<SideChannel>> OpenSideChannel(const MpiCore& core) {
  const bool one_host = OneHost(core.size);
  char address[512] = {};
  Result<SideChannel::Listener> listener = SideChannel::Listener();
  if (core.rank == 0) {
    listener = SideChannel::Listen(one_host);
    if (listener.has_value()) listener->address.copy(address, sizeof(address) - 1);
  }
  MPI_Bcast(address, sizeof(address), MPI_CHAR, 0, MPI_COMM_WORLD);
  if (core.rank != 0) return SideChannel::Connect(address, core.rank);
  RETURN_IF_ERROR(listener);
  return SideChannel::Accept(*listener, core.size);
}

}  // namespace

Result<std::unique_ptr<MpiSession>> StartMpi() {
  int started = 0;
  MPI_Initialized(&started);
  if (started != 0) return InvalidInput("mpi: got a second session, want one a process");
  int level = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS ||
      level < MPI_THREAD_FUNNELED) {
    return Failed("mpi: got thread level {}, want at least {}", level, MPI_THREAD_FUNNELED);
  }
  auto core = std::make_unique<MpiCore>();
  MPI_Comm_rank(MPI_COMM_WORLD, &core->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &core->size);
  MPI_Comm_dup(MPI_COMM_WORLD, &core->comm);
  MPI_Comm_set_errhandler(core->comm, MPI_ERRORS_RETURN);
  core->spins = core->size <= static_cast<int>(std::thread::hardware_concurrency()) ? 2000 : 20;
  ASSIGN_OR_RETURN(core->side, OpenSideChannel(*core));
  return std::make_unique<OpenMpiSession>(std::move(core));
}

}  // namespace plumbline
