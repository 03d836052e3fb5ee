// What every communicator must do when a rank fails: every rank gets one error that names it, nobody waits.
// Include in a test program that instantiates CommunicatorFaultContract with its backends.
#pragma once

#include <array>
#include <memory>

#include "plumbline/comm/contract_backend.h"

namespace plumbline {

class CommunicatorFaultContract : public ContractTest {
 protected:
  // Runs `rank`, which is to end in an error on every rank, and says whether it was this one everywhere.
  void ExpectError(const std::string& message, const RankFunction& rank) const {
    const Status status = Run([&](Communicator& comm) {
      const Status seen = rank(comm);
      EXPECT_FALSE(seen.has_value()) << "rank " << comm.rank();
      if (!seen.has_value()) {
        EXPECT_EQ(seen.error().message, message) << "rank " << comm.rank();
      }
      return seen;
    });
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().message, message);
  }
};

// An operation that goes on until it fails.
using Repeat = Status (*)(Communicator&);

template <typename Fn>
Status UntilItFails(Fn&& fn) {
  while (true) RETURN_IF_ERROR(fn());
}

template <int64_t kSize>
inline constexpr std::array<Repeat, 9> kOperations = {
    [](Communicator& comm) { return UntilItFails([&] { return comm.Barrier(); }); },
    [](Communicator& comm) {
      std::vector<std::byte> bytes(kSize);
      return UntilItFails([&] { return comm.Broadcast(bytes, 0); });
    },
    [](Communicator& comm) {
      std::vector<std::byte> mine(kSize), all(kSize * comm.size());
      return UntilItFails([&] { return comm.AllGather(mine, all); });
    },
    [](Communicator& comm) {
      std::vector<std::byte> send(kSize * comm.size()), receive(kSize * comm.size());
      return UntilItFails([&] { return comm.AllToAll(send, receive); });
    },
    [](Communicator& comm) {
      std::vector<float> nodes(kSize / 4), sum(kSize / 4);
      const LeafSplit split = LeafSplit::Even(comm.size(), comm.size());
      return UntilItFails([&] { return comm.AllReduceNodes(split, nodes, sum); });
    },
    [](Communicator& comm) {
      const std::vector<int64_t> counts(comm.size(), kSize / 4);
      std::vector<float> nodes(kSize / 4 * comm.size()), mine(kSize / 4);
      const LeafSplit split = LeafSplit::Even(comm.size(), comm.size());
      return UntilItFails([&] { return comm.ReduceScatterNodes(split, nodes, counts, mine); });
    },
    [](Communicator& comm) {
      std::vector<float> values(kSize / 4);
      return UntilItFails([&] { return comm.AllReduceMax(values); });
    },
    [](Communicator& comm) {
      std::vector<std::byte> bytes(kSize);
      const int next = (comm.rank() + 1) % comm.size();
      const int previous = (comm.rank() + comm.size() - 1) % comm.size();
      return UntilItFails([&]() -> Status {
        RETURN_IF_ERROR(comm.Send(bytes, next, 1));
        return comm.Receive(bytes, previous, 1);
      });
    },
    [](Communicator& comm) {
      return UntilItFails([&]() -> Status {
        ASSIGN_OR_RETURN(const auto group, comm.Split(0, 0));
        return group->Barrier();
      });
    },
};

TEST_P(CommunicatorFaultContract, AnErrorReachesEveryRankInEveryOperation) {
  if (ranks() == 1) GTEST_SKIP() << "nobody to tell";
  const int failing = ranks() - 1;
  const std::string message = "rank " + std::to_string(failing) + ": the disk is full";
  for (const auto& operations : {kOperations<64>, kOperations<100000>}) {
    for (const Repeat repeat : operations) {
      ExpectError(message, [&](Communicator& comm) -> Status {
        for (int i = 0; i < 3; ++i) RETURN_IF_ERROR(comm.Barrier());
        if (comm.rank() == failing) return comm.Abort(Failed("the disk is full").error());
        const Status first = repeat(comm);
        // All later calls say the same.
        EXPECT_EQ(comm.Barrier().error().message, first.error().message);
        EXPECT_EQ(comm.Split(0, 0).error().message, first.error().message);
        EXPECT_EQ(comm.Health().error().message, first.error().message);
        return first;
      });
    }
  }
}

TEST_P(CommunicatorFaultContract, ARankThatReturnsEarlyIsNamed) {
  if (ranks() == 1) GTEST_SKIP() << "nobody waits";
  const std::string message = "rank 1: exited while others wait";
  for (const Repeat repeat : kOperations<64>) {
    const Status status = Run([&](Communicator& comm) -> Status {
      RETURN_IF_ERROR(comm.Barrier());
      if (comm.rank() == 1) return {};
      const Status seen = repeat(comm);
      EXPECT_EQ(seen.error().message, message);
      return seen;
    });
    if (!status.has_value()) {
      EXPECT_EQ(status.error().message, message);
    }
  }
}

TEST_P(CommunicatorFaultContract, AnErrorCrossesGroupsOfOneFamily) {
  if (ranks() < 3) GTEST_SKIP() << "one group is all there is";
  for (const bool in_child : {true, false}) {
    const std::string message = "rank 2: lost";
    ExpectError(message, [&](Communicator& comm) -> Status {
      ASSIGN_OR_RETURN(const auto pair, comm.Split(comm.rank() / 2, 0));
      ASSIGN_OR_RETURN(const auto single, comm.Split(comm.rank(), 0));
      RETURN_IF_ERROR(comm.Barrier());
      if (comm.rank() == 2) return (in_child ? *single : comm).Abort(Failed("lost").error());
      if (comm.rank() == 0) return comm.Barrier();
      return UntilItFails([&] { return pair->Barrier(); });
    });
  }
}

TEST_P(CommunicatorFaultContract, TheFirstErrorStays) {
  ExpectError("rank 0: first", [&](Communicator& comm) -> Status {
    if (comm.rank() == 0) {
      (void)comm.Abort(Failed("first").error());
      return comm.Abort(Failed("second").error());
    }
    const Status seen = UntilItFails([&] { return comm.Barrier(); });
    EXPECT_EQ(comm.Abort(Failed("third").error()).error().message, "rank 0: first");
    return seen;
  });
}

TEST_P(CommunicatorFaultContract, CallsThatDoNotAgreeAreAnError) {
  if (ranks() == 1) GTEST_SKIP() << "nobody to disagree with";
  const auto expect_fault = [&](const RankFunction& rank) {
    const Status status = Run([&](Communicator& comm) {
      const Status seen = rank(comm);
      EXPECT_FALSE(seen.has_value());
      if (!seen.has_value()) {
        EXPECT_TRUE(seen.error().message.starts_with("rank ")) << seen.error().message;
      }
      return seen;
    });
    EXPECT_FALSE(status.has_value());
  };
  expect_fault([](Communicator& comm) {
    std::vector<std::byte> bytes(comm.rank() == 1 ? 8 : 12), all(bytes.size() * comm.size());
    return UntilItFails([&] { return comm.AllGather(bytes, all); });
  });
  expect_fault([](Communicator& comm) {
    std::vector<std::byte> bytes(8), all(8 * comm.size());
    return UntilItFails([&] { return comm.rank() == 1 ? comm.Barrier() : comm.AllGather(bytes, all); });
  });
  expect_fault([](Communicator& comm) {
    const std::vector<int64_t> send_counts(comm.size(), comm.rank() == 1 ? 4 : 8);
    const std::vector<int64_t> receive_counts(comm.size(), 8);
    std::vector<std::byte> send(send_counts[0] * comm.size()), receive(8 * comm.size());
    return UntilItFails([&] { return comm.AllToAllV(send, send_counts, receive, receive_counts); });
  });
  expect_fault([](Communicator& comm) -> Status {
    std::vector<std::byte> bytes(comm.rank() == 1 ? 8 : 12);
    if (comm.rank() == 1) RETURN_IF_ERROR(comm.Send(bytes, 0, 0));
    if (comm.rank() == 0) RETURN_IF_ERROR(comm.Receive(bytes, 1, 0));
    return UntilItFails([&] { return comm.Barrier(); });
  });
}

TEST_P(CommunicatorFaultContract, UnsoundArgumentsAreNamed) {
  const auto message = [&](const RankFunction& last_rank) {
    std::string text;
    const Status status = Run([&](Communicator& comm) -> Status {
      if (comm.rank() != comm.size() - 1) return UntilItFails([&] { return comm.Barrier(); });
      return last_rank(comm);
    });
    return status.has_value() ? "" : status.error().message;
  };
  const std::string who = "rank " + std::to_string(ranks() - 1) + ": ";
  const std::string size = std::to_string(ranks());
  std::vector<std::byte> bytes(4);
  std::vector<float> floats(3);
  EXPECT_EQ(message([&](Communicator& comm) { return comm.Broadcast(bytes, -1); }),
            who + "broadcast: got root -1, want 0 to " + std::to_string(ranks() - 1));
  EXPECT_EQ(message([&](Communicator& comm) { return comm.AllGather(bytes, {}); }),
            who + "all-gather: got room for 0, want " + std::to_string(4 * ranks()));
  EXPECT_EQ(
      message([&](Communicator& comm) {
        return comm.AllReduceNodes(LeafSplit::Even(9, comm.size() + 1), {}, floats);
      }),
      who + "all-reduce: got leaves split over " + std::to_string(ranks() + 1) + " ranks, want " + size);
  EXPECT_EQ(message([&](Communicator& comm) {
              return comm.AllReduceNodes(LeafSplit::Even(comm.size(), comm.size()), {}, floats);
            }),
            who + "all-reduce: got 0 floats of nodes, want 1 x 3");
  EXPECT_EQ(message([&](Communicator& comm) { return comm.Send(bytes, comm.rank(), 0); }),
            who + "send: got peer " + std::to_string(ranks() - 1) + ", want another rank of " + size +
                " (rank " + std::to_string(ranks() - 1) + ")");
}

}  // namespace plumbline
