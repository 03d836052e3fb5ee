#include "plumbline/nn/expert_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plumbline/base/float16.h"
#include "plumbline/nn/rank_test_util.h"

namespace plumbline {
namespace {

constexpr int64_t kHidden = 5, kExperts = 9, kChoices = 3;

DecoderConfig Config() {
  return {.hidden = kHidden,
          .layers = 1,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 2,
          .vocab = 10,
          .experts = {.count = kExperts, .per_token = kChoices, .intermediate = 8},
          .sparse = {1}};
}

// Row `row` of replica `replica`, and what expert `expert` makes of it.
float Value(int replica, int64_t row, int64_t column) {
  return static_cast<float>(100 * replica + row) + 0.01f * static_cast<float>(column);
}
float Given(float value, int64_t expert) { return 1000.0f * static_cast<float>(expert) + value; }

// The experts of a row, from its number alone: distinct, and of every owner sooner or later.
std::vector<int32_t> Choices(int replica, int64_t row) {
  std::vector<int32_t> ids(kExperts);
  for (int32_t e = 0; e < kExperts; ++e) ids[e] = e;
  std::shuffle(ids.begin(), ids.end(), std::mt19937(static_cast<uint32_t>(1000 * replica + row)));
  ids.resize(kChoices);
  return ids;
}

struct Case {
  ParallelDegrees degrees;
  std::vector<int64_t> replica_rows;
};

Status RunExchange(const RankContext& rank, const Case& c, Compute compute) {
  const DecoderConfig config = Config();
  const int64_t most = std::max<int64_t>(1, std::ranges::max(c.replica_rows)), all = most * c.degrees.dp;
  ExpertExchange exchange;
  exchange.Reserve(config, rank.shard, most, all);
  const ExpertExchange::Rows largest = ExpertExchange::Largest(config, rank.shard, most, all);
  const int replica = rank.shard.at.replica;
  const Range home = exchange.Begin(rank, c.replica_rows);
  EXPECT_LE(home.size(), largest.home);
  std::vector<int32_t> ids;
  std::vector<float> rows;
  for (int64_t row = home.begin; row < home.end; ++row) {
    for (const int32_t id : Choices(replica, row)) ids.push_back(id);
    for (int64_t i = 0; i < kHidden; ++i) rows.push_back(Value(replica, row, i));
  }
  RETURN_IF_ERROR(exchange.Plan(rank, {ids.data(), home.size(), kChoices}));
  std::vector<float> send(largest.sent * kHidden), raw(largest.received * kHidden), received(raw.size());
  RETURN_IF_ERROR(exchange.Dispatch(rank, {rows.data(), home.size(), kHidden}, compute, send, raw, received));
  EXPECT_LE(exchange.received_rows(), largest.received);

  ExpertGroups groups;
  groups.Build(exchange.pair_experts(), rank.shard.experts.size(),
               [&](int64_t pair) { return exchange.pair_rows()[pair]; });
  EXPECT_LE(groups.pairs(), largest.pairs);
  std::vector<float> given(groups.pairs() * kHidden), give(given.size());
  for (int64_t e = 0; e < rank.shard.experts.size(); ++e) {
    for (int64_t pair = groups.offsets[e]; pair < groups.offsets[e + 1]; ++pair) {
      for (int64_t i = 0; i < kHidden; ++i)
        given[pair * kHidden + i] =
            Given(received[groups.rows[pair] * kHidden + i], rank.shard.experts.begin + e);
    }
  }
  std::vector<float> returned(home.size() * kChoices * kHidden);
  RETURN_IF_ERROR(exchange.Return(rank, {given.data(), groups.pairs(), kHidden}, groups, give, returned));
  EXPECT_EQ(std::ssize(exchange.slots()), home.size() * kChoices);
  for (int64_t i = 0; i < home.size() * kChoices; ++i) {
    for (int64_t column = 0; column < kHidden; ++column) {
      const float sent = Value(replica, home.begin + i / kChoices, column);
      const float value = compute == Compute::kBf16 ? Bf16ToF32(F32ToBf16(sent)) : sent;
      EXPECT_EQ(returned[exchange.slots()[i] * kHidden + column], Given(value, ids[i]))
          << "rank " << rank.world.rank() << ", pair " << i;
    }
  }
  return {};
}

TEST(ExpertExchangeTest, RowsComeBackFromEveryExpertTheyWentTo) {
  for (const Case& c : {Case{{.tp = 2, .ep = 2}, {7}},
                        {{.dp = 2, .ep = 2}, {4, 9}},
                        {{.dp = 3, .ep = 3}, {0, 5, 0}},
                        {{.dp = 4, .ep = 4}, {1, 0, 0, 0}},
                        {{.tp = 2, .dp = 2, .ep = 4}, {1, 12}},
                        {{.tp = 3, .dp = 2, .ep = 6}, {2, 0}},
                        {{.dp = 8, .ep = 8}, {3, 1, 4, 1, 5, 9, 2, 6}},
                        {{.dp = 2, .pp = 2, .cp = 2, .ep = 2}, {3, 6}},
                        {{.tp = 4, .dp = 2, .ep = 8}, {0, 0}}}) {
    for (const Compute compute : {Compute::kF32, Compute::kBf16}) {
      for (int threads : {1, 3}) {
        const Status status = RunOnRanks(
            Config(), c.degrees, [&](const RankContext& rank) { return RunExchange(rank, c, compute); },
            threads);
        EXPECT_TRUE(status.has_value()) << status.error().message;
      }
    }
  }
}

// A row leaves its home once for each rank that holds experts of it.
TEST(ExpertExchangeTest, RowsTravelOnceToARank) {
  for (const auto& [compute, bytes] : {std::pair{Compute::kF32, 4}, {Compute::kBf16, 2}}) {
    const Case c{{.dp = 2, .ep = 2}, {40, 0}};
    int64_t owners = 0;
    for (int64_t row = 0; row < 40; ++row) {
      bool seen[2] = {};
      for (const int32_t id : Choices(0, row)) seen[id >= 5] = true;
      owners += seen[0] + seen[1];
    }
    int64_t moved = 0;
    const Status status = RunOnRanks(Config(), c.degrees, [&](const RankContext& rank) -> Status {
      const int64_t before = rank.experts.moved_bytes();
      RETURN_IF_ERROR(RunExchange(rank, c, compute));
      if (rank.world.rank() == 0) moved = rank.experts.moved_bytes() - before;
      return {};
    });
    ASSERT_TRUE(status.has_value()) << status.error().message;
    int64_t pairs_here = 0;
    for (int64_t row = 0; row < 40; ++row) {
      for (const int32_t id : Choices(0, row)) pairs_here += id < 5;
    }
    EXPECT_EQ(moved, 40 * kChoices * 4 + owners * kHidden * bytes + pairs_here * kHidden * 4);
  }
}

}  // namespace
}  // namespace plumbline
