// Latency and bandwidth of an all-reduce between two ranks, one node each: threads beside memcpy, or, started
// by mpirun, processes beside MPI_Allreduce.
//
// usage: plumbline_bench_comm local
//        mpirun -n 2 plumbline_bench_comm mpi
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "plumbline/comm/local/local_group.h"
#include "plumbline/comm/mpi/mpi_group.h"

namespace plumbline {
namespace {

// The best of five runs of at least 20 ms, in microseconds a call. Every rank makes the same number of calls.
template <typename Call>
double Microseconds(int64_t bytes, Call&& call) {
  const int calls = static_cast<int>(std::clamp<int64_t>(200'000'000 / (bytes + 20'000), 20, 10'000));
  for (int i = 0; i < calls / 10; ++i) call();
  double best = 1e30;
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / calls);
  }
  return best;
}

using Other = void (*)(const std::vector<float>& from, std::vector<float>& to);

Status Measure(Communicator& comm, const char* name, const char* other_name, Other other) {
  const LeafSplit split = LeafSplit::Even(comm.size(), comm.size());
  if (comm.rank() == 0) {
    std::printf("%10s %12s us  GB/s %14s us  GB/s\n", "bytes", name, other_name);
  }
  for (int64_t bytes = 2048; bytes <= 4 << 20; bytes *= 2) {
    const int64_t n = bytes == 2048 ? 576 : bytes / 4;  // the smallest: the hidden state of the default model
    std::vector<float> nodes(n, 1.0f), sum(n);
    Status status;
    // Written anew each time, as a matmul would: what a peer only ever reads stays in both caches.
    const double ours = Microseconds(n * 4, [&] {
      std::ranges::fill(nodes, 1.0f);
      if (status.has_value()) status = comm.AllReduceNodes(split, nodes, sum);
    });
    RETURN_IF_ERROR(status);
    const double theirs = Microseconds(n * 4, [&] {
      std::ranges::fill(nodes, 1.0f);
      other(nodes, sum);
    });
    RETURN_IF_ERROR(comm.Barrier());
    const auto rate = [&](double microseconds) { return static_cast<double>(n * 4) / microseconds / 1e3; };
    if (comm.rank() == 0) {
      std::printf("%10ld %15.2f %5.1f %17.2f %5.1f\n", n * 4, ours, rate(ours), theirs, rate(theirs));
    }
  }
  return {};
}

void Copy(const std::vector<float>& from, std::vector<float>& to) {
  std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
  asm volatile("" ::"r"(to.data()) : "memory");
}

void BackendSum(const std::vector<float>& from, std::vector<float>& to) {
  MPI_Allreduce(from.data(), to.data(), static_cast<int>(from.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

Status Run(std::string_view how) {
  if (how == "local") {
    return RunRanks(2, [](Communicator& comm) { return Measure(comm, "local", "memcpy", Copy); });
  }
  if (how != "mpi") return InvalidInput("got {}, want local or mpi", how);
  ASSIGN_OR_RETURN(const auto session, StartMpi());
  ASSIGN_OR_RETURN(const auto group, session->MakeGroup());
  return Measure(*group, "mpi", "MPI_Allreduce", BackendSum);
}

}  // namespace
}  // namespace plumbline

int main(int argc, char** argv) {
  const plumbline::Status status = plumbline::Run(argc > 1 ? argv[1] : "local");
  if (!status.has_value()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.has_value() ? 0 : 1;
}
