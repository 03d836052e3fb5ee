// After the largest message has passed once, collectives between threads allocate nothing.
#include <gtest/gtest.h>

#include "plumbline/comm/local/local_group.h"
#include "plumbline/kernels/count_allocations.h"

namespace plumbline {
namespace {

TEST(LocalAllocationTest, CallsAllocateNothingOnceWarm) {
  const Status status = RunRanks(3, [](Communicator& comm) -> Status {
    const LeafSplit split = LeafSplit::Even(7, comm.size());
    const std::vector<int64_t> counts = {1000, 0, 19000};
    std::vector<std::byte> bytes(60000), all(60000 * comm.size());
    std::vector<float> nodes(split.count(comm.rank()) * 20000), sum(20000), mine(counts[comm.rank()]);
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + 2) % comm.size();
    const auto step = [&]() -> Status {
      RETURN_IF_ERROR(comm.Broadcast(bytes, 1));
      RETURN_IF_ERROR(comm.AllGather(bytes, all));
      RETURN_IF_ERROR(comm.AllToAll(std::span(bytes).first(30000), std::span(all).first(30000)));
      RETURN_IF_ERROR(comm.AllReduceNodes(split, nodes, sum));
      RETURN_IF_ERROR(comm.AllReduceNodes(split, std::span(nodes).first(split.count(comm.rank()) * 16),
                                          std::span(sum).first(16)));
      RETURN_IF_ERROR(comm.ReduceScatterNodes(split, nodes, counts, mine));
      RETURN_IF_ERROR(comm.AllReduceMax(sum));
      RETURN_IF_ERROR(comm.Send(bytes, next, 0));
      RETURN_IF_ERROR(comm.Receive(bytes, previous, 0));
      return comm.Barrier();
    };
    for (int i = 0; i < 3; ++i) RETURN_IF_ERROR(step());
    RETURN_IF_ERROR(comm.Barrier());
    const int64_t before = Allocations();
    RETURN_IF_ERROR(comm.Barrier());
    for (int i = 0; i < 20; ++i) RETURN_IF_ERROR(step());
    EXPECT_EQ(Allocations(), before);
    return comm.Barrier();
  });
  EXPECT_TRUE(status.has_value());
}

}  // namespace
}  // namespace plumbline
