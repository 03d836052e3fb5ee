// What every communicator must do while nothing fails. Include in a test program that instantiates
// CommunicatorContract with its backends.
#pragma once

#include <bit>
#include <limits>
#include <memory>
#include <numeric>

#include "plumbline/comm/contract_backend.h"

namespace plumbline {

class CommunicatorContract : public ContractTest {};

TEST_P(CommunicatorContract, KnowsItself) {
  std::vector<int> seen(ranks());
  RunAll([&](Communicator& comm) -> Status {
    EXPECT_EQ(comm.size(), ranks());
    ++seen[comm.rank()];
    for (int i = 0; i < 100; ++i) RETURN_IF_ERROR(comm.Barrier());
    return comm.Health();
  });
  EXPECT_LE(*std::ranges::max_element(seen), 1);
}

TEST_P(CommunicatorContract, Broadcasts) {
  RunAll([&](Communicator& comm) -> Status {
    for (int64_t size : contract::kSizes) {
      for (int root = 0; root < comm.size(); root += std::max(1, comm.size() / 3)) {
        std::vector<std::byte> bytes = contract::Bytes(comm.rank(), size);
        RETURN_IF_ERROR(comm.Broadcast(bytes, root));
        EXPECT_TRUE(bytes == contract::Bytes(root, size)) << size << " from " << root;
      }
    }
    return {};
  });
}

TEST_P(CommunicatorContract, Gathers) {
  RunAll([&](Communicator& comm) -> Status {
    for (int64_t size : contract::kSizes) {
      std::vector<std::byte> want;
      for (int r = 0; r < comm.size(); ++r) contract::Append(want, contract::Bytes(r, size));
      std::vector<std::byte> all(want.size());
      RETURN_IF_ERROR(comm.AllGather(contract::Bytes(comm.rank(), size), all));
      EXPECT_TRUE(all == want) << size;
      const auto place = std::span(all).subspan(comm.rank() * size, size);
      std::ranges::copy(contract::Bytes(comm.rank(), size), place.begin());
      std::fill(all.begin(), all.begin() + comm.rank() * size, std::byte{});
      RETURN_IF_ERROR(comm.AllGather(place, all));
      EXPECT_TRUE(all == want) << size << " in place";
    }
    return {};
  });
}

TEST_P(CommunicatorContract, GathersUnevenParts) {
  RunAll([&](Communicator& comm) -> Status {
    for (int64_t size : {1, 5000, 300000}) {
      std::vector<int64_t> counts(comm.size());
      std::vector<std::byte> want;
      for (int r = 0; r < comm.size(); ++r) {
        counts[r] = (r + 1) % 3 * size;
        contract::Append(want, contract::Bytes(r, counts[r]));
      }
      std::vector<std::byte> all(want.size());
      RETURN_IF_ERROR(comm.AllGatherV(contract::Bytes(comm.rank(), counts[comm.rank()]), counts, all));
      EXPECT_TRUE(all == want) << size;
    }
    return {};
  });
}

TEST_P(CommunicatorContract, ExchangesAllToAll) {
  RunAll([&](Communicator& comm) -> Status {
    for (int64_t size : {0, 1, 1000, 100001}) {
      std::vector<std::byte> send, want;
      for (int r = 0; r < comm.size(); ++r) {
        contract::Append(send, contract::Bytes(comm.rank(), size, r));
        contract::Append(want, contract::Bytes(r, size, comm.rank()));
      }
      std::vector<std::byte> receive(want.size());
      RETURN_IF_ERROR(comm.AllToAll(send, receive));
      EXPECT_TRUE(receive == want) << size;
    }
    return {};
  });
}

TEST_P(CommunicatorContract, ExchangesUnevenPartsAllToAll) {
  const auto count = [](int from, int to, int64_t size) { return (from * 7 + to * 3) % 5 * size; };
  RunAll([&](Communicator& comm) -> Status {
    for (int64_t size : {1, 999, 50001}) {
      std::vector<std::byte> send, want;
      std::vector<int64_t> send_counts, receive_counts;
      for (int r = 0; r < comm.size(); ++r) {
        send_counts.push_back(count(comm.rank(), r, size));
        receive_counts.push_back(count(r, comm.rank(), size));
        contract::Append(send, contract::Bytes(comm.rank(), send_counts[r], r));
        contract::Append(want, contract::Bytes(r, receive_counts[r], comm.rank()));
      }
      std::vector<std::byte> receive(want.size());
      RETURN_IF_ERROR(comm.AllToAllV(send, send_counts, receive, receive_counts));
      EXPECT_TRUE(receive == want) << size;
    }
    return {};
  });
}

TEST_P(CommunicatorContract, SumsNodesAsOneHolderWould) {
  RunAll([&](Communicator& comm) -> Status {
    std::mt19937 random(7);
    for (int64_t columns : {1, 37, 576, 4097, 40000}) {
      for (int64_t leaves : {1, 2, 7, 16, 29}) {
        if (columns * leaves > 300000) continue;
        const auto offsets = contract::RandomOffsets(random, leaves, comm.size());
        const auto want = contract::MakeReduction(offsets, columns, comm.rank(), leaves);
        std::vector<float> sum(columns, 1.0f);
        RETURN_IF_ERROR(comm.AllReduceNodes(want.split, want.my_nodes, sum));
        EXPECT_TRUE(contract::SameBits(sum, want.sum)) << columns << " columns, " << leaves << " leaves";
      }
    }
    std::vector<float> sum(3, 1.0f);
    RETURN_IF_ERROR(comm.AllReduceNodes(LeafSplit::Even(0, comm.size()), {}, sum));
    EXPECT_EQ(sum, std::vector<float>(3, 0.0f));
    return {};
  });
}

TEST_P(CommunicatorContract, ScattersSumsOfNodes) {
  RunAll([&](Communicator& comm) -> Status {
    std::mt19937 random(8);
    for (int64_t size : {1, 100, 5001}) {
      std::vector<int64_t> counts;
      for (int r = 0; r < comm.size(); ++r) counts.push_back((r + 1) % 3 * size);
      const int64_t columns = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      const int64_t offset = std::accumulate(counts.begin(), counts.begin() + comm.rank(), int64_t{0});
      const auto offsets = contract::RandomOffsets(random, 11, comm.size());
      const auto want = contract::MakeReduction(offsets, columns, comm.rank(), size);
      std::vector<float> mine(counts[comm.rank()]);
      RETURN_IF_ERROR(comm.ReduceScatterNodes(want.split, want.my_nodes, counts, mine));
      EXPECT_TRUE(contract::SameBits(mine, std::span(want.sum).subspan(offset, mine.size()))) << size;
    }
    return {};
  });
}

TEST_P(CommunicatorContract, FindsMaxima) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  RunAll([&](Communicator& comm) -> Status {
    const int last = comm.size() - 1;
    const bool is_last = comm.rank() == last;
    for (int64_t n : {8, 12345, 300000}) {
      std::vector<float> values(n, -kInfinity);
      for (int64_t i = 7; i < n; ++i) values[i] = static_cast<float>((i * 31 + comm.rank() * 17) % 101 - 50);
      values[1] = is_last ? -3.0f : -kInfinity;
      values[2] = is_last ? -kNan : 5.0f;
      values[3] = comm.rank() == 0 ? kInfinity : 2.0f;
      values[4] = is_last ? 0.0f : -0.0f;
      values[5] = comm.rank() == 0 ? kNan : kInfinity;
      values[6] = -1e-40f * static_cast<float>(comm.rank() + 1);
      RETURN_IF_ERROR(comm.AllReduceMax(values));
      std::vector<float> want = {-kInfinity, -3.0f, std::bit_cast<float>(0x7fc00000u),
                                 kInfinity,  0.0f,  std::bit_cast<float>(0x7fc00000u),
                                 -1e-40f};
      for (int64_t i = 7; i < n; ++i) {
        want.push_back(-kInfinity);
        for (int r = 0; r < comm.size(); ++r) {
          want[i] = std::max(want[i], static_cast<float>((i * 31 + r * 17) % 101 - 50));
        }
      }
      EXPECT_TRUE(contract::SameBits(values, want)) << n;
    }
    return comm.AllReduceMax({});
  });
}

TEST_P(CommunicatorContract, AllMaySendBeforeTheyReceive) {
  if (ranks() == 1) GTEST_SKIP() << "nobody to send to";
  RunAll([&](Communicator& comm) -> Status {
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (int64_t size : contract::kSizes) {
      RETURN_IF_ERROR(comm.Send(contract::Bytes(comm.rank(), size), next, 0));
      std::vector<std::byte> bytes(size);
      RETURN_IF_ERROR(comm.Receive(bytes, previous, 0));
      EXPECT_TRUE(bytes == contract::Bytes(previous, size)) << size;
    }
    return {};
  });
}

TEST_P(CommunicatorContract, KeepsManyMessagesInFlightAndTagsApart) {
  if (ranks() == 1) GTEST_SKIP() << "nobody to send to";
  RunAll([&](Communicator& comm) -> Status {
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 60; ++i) {
        const int64_t size = i * 37 % 50 * (i % 7 == 0 ? 2000 : 10);
        RETURN_IF_ERROR(comm.Send(contract::Bytes(comm.rank(), size, i), next, i % 3));
      }
      RETURN_IF_ERROR(comm.Barrier());
      for (int tag : {2, 0, 1}) {
        for (int i = tag; i < 60; i += 3) {
          const int64_t size = i * 37 % 50 * (i % 7 == 0 ? 2000 : 10);
          std::vector<std::byte> bytes(size);
          RETURN_IF_ERROR(comm.Receive(bytes, previous, tag));
          EXPECT_TRUE(bytes == contract::Bytes(previous, size, i)) << i;
        }
      }
    }
    return {};
  });
}

// The ranks of a group by what they gathered of each other's `id`.
inline Result<std::vector<int>> Members(Communicator& comm, int id) {
  std::vector<int> ids(comm.size());
  RETURN_IF_ERROR(comm.AllGather(std::as_bytes(std::span(&id, 1)), std::as_writable_bytes(std::span(ids))));
  return ids;
}

TEST_P(CommunicatorContract, SplitsByColorAndKey) {
  RunAll([&](Communicator& comm) -> Status {
    const int rank = comm.rank();
    ASSIGN_OR_RETURN(const auto reversed, comm.Split(0, -rank));
    ASSIGN_OR_RETURN(const std::vector<int> all, Members(*reversed, rank));
    for (int r = 0; r < comm.size(); ++r) EXPECT_EQ(all[r], comm.size() - 1 - r);
    EXPECT_EQ(reversed->rank(), comm.size() - 1 - rank);

    ASSIGN_OR_RETURN(const auto odd, comm.Split(rank % 2 == 1 ? 5 : -1, 0));
    EXPECT_EQ(odd != nullptr, rank % 2 == 1);
    if (odd != nullptr) {
      ASSIGN_OR_RETURN(const std::vector<int> members, Members(*odd, rank));
      for (size_t i = 0; i < members.size(); ++i) EXPECT_EQ(members[i], 2 * static_cast<int>(i) + 1);
      EXPECT_EQ(members.size(), static_cast<size_t>(comm.size() / 2));
    }
    return comm.Barrier();
  });
}

// Sums along one axis and gathers along the others, one group while the other's are under way.
TEST_P(CommunicatorContract, SplitsOfSplitsWorkSideBySide) {
  RunAll([&](Communicator& comm) -> Status {
    const int rank = comm.rank();
    ASSIGN_OR_RETURN(const auto half, comm.Split(rank / 2, rank));
    ASSIGN_OR_RETURN(const auto across, comm.Split(rank % 2, rank));
    ASSIGN_OR_RETURN(const auto quarter, across->Split(across->rank() / 2, 0));
    ASSIGN_OR_RETURN(const auto last, across->Split(across->rank() % 2, 0));
    for (int i = 0; i < 20; ++i) {
      const int64_t columns = i % 5 == 4 ? 20000 : 64;
      for (Communicator* group : {half.get(), quarter.get(), &comm, last.get(), across.get()}) {
        const LeafSplit even = LeafSplit::Even(8, group->size());
        std::vector<int64_t> offsets;
        for (int r = 0; r <= group->size(); ++r) offsets.push_back(r == 0 ? 0 : even.end(r - 1));
        const auto want = contract::MakeReduction(offsets, columns, group->rank(), i);
        std::vector<float> sum(columns);
        RETURN_IF_ERROR(group->AllReduceNodes(want.split, want.my_nodes, sum));
        EXPECT_TRUE(contract::SameBits(sum, want.sum));
      }
      ASSIGN_OR_RETURN(const std::vector<int> members, Members(*half, rank));
      for (size_t m = 0; m < members.size(); ++m) EXPECT_EQ(members[m], rank / 2 * 2 + static_cast<int>(m));
    }
    return {};
  });
}

TEST_P(CommunicatorContract, AGroupOutlivesItsParent) {
  RunAll([&](Communicator& comm) -> Status {
    std::unique_ptr<Communicator> last;
    {
      ASSIGN_OR_RETURN(const auto first, comm.Split(0, 0));
      ASSIGN_OR_RETURN(last, first->Split(0, 0));
    }
    ASSIGN_OR_RETURN(const std::vector<int> members, Members(*last, comm.rank()));
    EXPECT_EQ(members.back(), comm.size() - 1);
    return {};
  });
}

// Operations of many kinds and sizes one after the other, ranks now and then late.
TEST_P(CommunicatorContract, SurvivesAnyMixture) {
  RunAll([&](Communicator& comm) -> Status {
    std::mt19937 random(9);
    std::mt19937 mine(comm.rank());
    for (int i = 0; i < 400; ++i) {
      const auto size = static_cast<int64_t>(random() % (random() % 8 == 0 ? 60000 : 200));
      const auto kind = random() % 4;
      const int root = static_cast<int>(random() % comm.size());
      for (auto spin = mine() % 16 == 0 ? mine() % 200 : 0; spin > 0; --spin) (void)comm.Health();
      if (kind == 0) {
        std::vector<std::byte> bytes = contract::Bytes(comm.rank(), size, i);
        RETURN_IF_ERROR(comm.Broadcast(bytes, root));
        EXPECT_TRUE(bytes == contract::Bytes(root, size, i)) << i;
      } else if (kind == 1) {
        std::vector<std::byte> all(size * comm.size());
        RETURN_IF_ERROR(comm.AllGather(contract::Bytes(comm.rank(), size, i), all));
        const auto theirs = std::span(all).subspan(root * size, size);
        EXPECT_TRUE(std::ranges::equal(theirs, contract::Bytes(root, size, i))) << i;
      } else if (kind == 2) {
        std::vector<float> values(size / 4, static_cast<float>((comm.rank() * 5 + i) % comm.size()));
        RETURN_IF_ERROR(comm.AllReduceMax(values));
        std::vector<float> want(size / 4, 0.0f);
        for (int r = 0; r < comm.size(); ++r) {
          for (float& x : want) x = std::max(x, static_cast<float>((r * 5 + i) % comm.size()));
        }
        EXPECT_EQ(values, want) << i;
      } else {
        RETURN_IF_ERROR(comm.Barrier());
      }
    }
    return {};
  });
}

}  // namespace plumbline
