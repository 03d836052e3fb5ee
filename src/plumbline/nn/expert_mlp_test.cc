#include "plumbline/nn/expert_mlp.h"

#include <gtest/gtest.h>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/activation/activation_twin.h"
#include "plumbline/kernels/experts/experts_twin.h"
#include "plumbline/kernels/gemm/gemm_testing.h"
#include "plumbline/kernels/gemm/gemm_twin.h"
#include "plumbline/nn/rank_test_util.h"

namespace plumbline {
namespace {

using namespace gemm_testing;

struct Block {
  std::string name;
  int64_t hidden, width, experts, per_token;
  bool normalize;
  DType dtype;

  DecoderConfig Config() const {
    return {
        .hidden = hidden,
        .layers = 1,
        .heads = 4,
        .kv_heads = 4,
        .head_dim = 2,
        .vocab = 10,
        .experts = {.count = experts, .per_token = per_token, .intermediate = width, .normalize = normalize},
        .sparse = {1}};
  }
};

const std::vector<Block> kBlocks = {
    {"three leaves", 70, 700, 5, 2, true, DType::kF32},
    {"fewer leaves than ranks", 64, 32, 9, 3, false, DType::kQ8_0},
    {"every expert", 33, 300, 3, 3, true, DType::kBF16},
    {"one expert a row", 48, 520, 4, 1, false, DType::kF16},
};

// A block's weights as a checkpoint has them.
struct Weights {
  Weight router;
  std::vector<Weight> gate, up, down;

  explicit Weights(const Block& b) : router(PlainWeight(DType::kF32, b.experts, b.hidden, 1)) {
    for (int64_t e = 0; e < b.experts; ++e) {
      gate.push_back(PlainWeight(b.dtype, b.width, b.hidden, 10 + e));
      up.push_back(PlainWeight(b.dtype, b.width, b.hidden, 110 + e));
      down.push_back(PlainWeight(b.dtype, b.hidden, b.width, 210 + e));
    }
  }
};

Result<Linear> Pack(const RankContext& rank, const RawTensor& raw, Compute compute) {
  ASSIGN_OR_RETURN(PackedWeight weight, PackedWeight::Pack(rank.kernel, raw, compute, kMaxLeaf));
  return Linear{.weight = std::move(weight)};
}

Result<ExpertMlp> Load(const RankContext& rank, const Block& block, const Weights& weights, Compute compute) {
  ExpertMlp mlp{.compute = compute};
  ASSIGN_OR_RETURN(mlp.router, Pack(rank, weights.router.tensor, compute));
  const DecoderConfig config = block.Config();
  const DecoderShard& shard = rank.shard;
  const int sharing = shard.degrees.ep > 1 ? 1 : shard.degrees.tp;
  std::vector<Range> inputs;
  for (int r = 0; r < sharing; ++r) inputs.push_back(ExpertIntermediateOf(config, shard.degrees, r));
  const Range& own = shard.expert_intermediate;
  for (int64_t e = shard.experts.begin; e < shard.experts.end; ++e) {
    ExpertMlp::Expert expert{.down_proj = RowParallelLinear::Cut(block.width, kMaxLeaf, inputs)};
    if (own.size() > 0) {
      ASSIGN_OR_RETURN(expert.gate_proj,
                       Pack(rank, weights.gate[e].tensor.Rows(own.begin, own.end), compute));
      ASSIGN_OR_RETURN(expert.up_proj, Pack(rank, weights.up[e].tensor.Rows(own.begin, own.end), compute));
    }
    for (const Range& columns : expert.down_proj.PartsOf(sharing > 1 ? shard.at.tensor : 0)) {
      ASSIGN_OR_RETURN(Linear part,
                       Pack(rank, weights.down[e].tensor.Columns(columns.begin, columns.end), compute));
      expert.down_proj.parts.push_back({.k_begin = columns.begin, .weight = std::move(part.weight)});
    }
    mlp.experts.push_back(std::move(expert));
  }
  return mlp;
}

// The block by its definitions, one row and expert at a time.
void Twin(const Block& b, const Weights& weights, Compute compute, MatrixView<const float> x,
          MatrixView<float> y) {
  const ScopedFloatEnv env;
  const auto gemm = [&](const Weight& weight, MatrixView<const float> in) {
    Matrix out(1, weight.tensor.shape[0]);
    const std::vector<float> values = gemm_twin::WeightValues(weight.tensor, compute);
    gemm_twin::Gemm(in, values.data(), kMaxLeaf, compute, nullptr, false, out.view);
    return out;
  };
  for (int64_t row = 0; row < x.rows; ++row) {
    const MatrixView<const float> in = x.Rows(row, 1);
    const Matrix logits = gemm(weights.router, in);
    std::vector<int32_t> ids(b.per_token);
    std::vector<float> w(b.per_token);
    TwinChooseExperts(logits.view.data, b.experts, b.per_token, b.normalize, ids.data(), w.data());
    std::vector<Matrix> outputs;
    for (const int32_t id : ids) {
      const Matrix gate = gemm(weights.gate[id], in), up = gemm(weights.up[id], in);
      for (int64_t i = 0; i < b.width; ++i)
        gate.view.data[i] = TwinGatedActivation(Activation::kSilu, gate.view.data[i], up.view.data[i]);
      outputs.push_back(gemm(weights.down[id], gate.view));
    }
    for (int64_t c = 0; c < b.hidden; ++c) {
      std::vector<float> given;
      for (const Matrix& output : outputs) given.push_back(output.view.data[c]);
      y.Row(row)[c] = y.Row(row)[c] + TwinCombineExperts(w.data(), given.data(), b.per_token);
    }
  }
}

struct Ranks {
  ParallelDegrees degrees;
  int threads = 1;
  std::vector<int64_t> replica_rows;  // empty: all on the one replica
};

// The residual stream of each rank's replica afterwards, where it began as its rows of `before`.
std::vector<Matrix> RunBlock(const Block& block, const Weights& weights, Compute compute, const Ranks& how,
                             MatrixView<const float> x, const Matrix& before) {
  const DecoderConfig config = block.Config();
  const std::vector<int64_t> replica_rows =
      how.replica_rows.empty() ? std::vector<int64_t>{x.rows} : how.replica_rows;
  std::vector<Matrix> results;
  for (int r = 0; r < how.degrees.Ranks(); ++r)
    results.emplace_back(replica_rows[CoordinatesOf(how.degrees, r).replica], block.hidden);
  const Status status = RunOnRanks(
      config, how.degrees,
      [&](const RankContext& rank) -> Status {
        ASSIGN_OR_RETURN(const ExpertMlp mlp, Load(rank, block, weights, compute));
        const auto nodes = static_cast<int64_t>(mlp.experts.front().down_proj.parts.size());
        const int64_t most = std::ranges::max(replica_rows);
        ASSIGN_OR_RETURN(
            DecoderWorkspace workspace,
            DecoderWorkspace::Allocate(
                config, rank.shard,
                {.tokens = most, .all_tokens = most * std::ssize(replica_rows), .sum_nodes = nodes}));
        const int replica = rank.shard.at.replica;
        Range own;
        for (int r = 0; r <= replica; ++r) own = {own.end, own.end + replica_rows[r]};
        for (int64_t row = 0; row < own.size(); ++row) {
          std::copy_n(x.Row(own.begin + row), x.cols, workspace.normed.Row(row));
          std::copy_n(before.view.Row(own.begin + row), x.cols, workspace.hidden.Row(row));
        }
        RETURN_IF_ERROR(mlp.Forward(rank, config, {.own = own, .replica_rows = replica_rows}, workspace));
        for (int64_t row = 0; row < own.size(); ++row)
          std::copy_n(workspace.hidden.Row(row), x.cols, results[rank.world.rank()].view.Row(row));
        return {};
      },
      how.threads);
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return results;
}

Matrix Copy(const Matrix& from) {
  Matrix copy(from.view.rows, from.view.cols);
  copy.values = from.values;
  copy.view.data = copy.values.data() + 1;
  return copy;
}

void ExpectBits(const Block& block, const Ranks& how, const std::vector<Matrix>& got, const Matrix& want) {
  for (int r = 0; r < how.degrees.Ranks(); ++r) {
    int64_t begin = 0;
    for (int replica = 0; replica < CoordinatesOf(how.degrees, r).replica; ++replica)
      begin += how.replica_rows[replica];
    ASSERT_EQ(FirstDifference(got[r].view, want.view.Rows(begin, got[r].view.rows)), "")
        << block.name << ", tp " << how.degrees.tp << " dp " << how.degrees.dp << " ep " << how.degrees.ep
        << ", rank " << r << ", " << how.threads << " threads, " << want.view.rows << " rows";
  }
}

class ExpertMlpTest : public testing::TestWithParam<Block> {};

TEST_P(ExpertMlpTest, BitsAreTheDefinitionsOnAnyRanksAndThreads) {
  const Block& block = GetParam();
  const Weights weights(block);
  for (const Compute compute : kComputes) {
    for (const int64_t tokens : {1, 6, 19}) {
      const Matrix x = RandomMatrix(tokens, block.hidden, 3), before = RandomMatrix(tokens, block.hidden, 5);
      const Matrix want = Copy(before);
      Twin(block, weights, compute, x.view, want.view);
      ASSERT_NE(FirstDifference(want.view, before.view), "");
      for (const Ranks& how :
           {Ranks{.threads = 1},
            {.threads = 3},
            {.degrees = {.tp = 2}},
            {.degrees = {.tp = 3}, .threads = 2},
            {.degrees = {.tp = 4}},
            {.degrees = {.tp = 2, .ep = 2}, .threads = 2},
            {.degrees = {.tp = 3, .ep = 3}},
            {.degrees = {.tp = 4, .ep = 4}},
            {.degrees = {.dp = 2, .ep = 2}, .replica_rows = {tokens, 0}},
            {.degrees = {.dp = 2, .ep = 2}, .replica_rows = {tokens / 3, tokens - tokens / 3}},
            {.degrees = {.dp = 3, .ep = 3}, .threads = 2, .replica_rows = {0, tokens, 0}},
            {.degrees = {.tp = 2, .dp = 2, .ep = 4}, .replica_rows = {tokens - 1, 1}},
            {.degrees = {.tp = 2, .dp = 4, .ep = 8},
            .replica_rows = {tokens / 2, 0, 0, tokens - tokens / 2}}}) {
        if (how.degrees.ep > block.experts) continue;
        ExpectBits(block, how, RunBlock(block, weights, compute, how, x.view, before), want);
      }
    }
  }
}

TEST_P(ExpertMlpTest, ARowsBitsDoNotDependOnItsCompany) {
  const Block& block = GetParam();
  const Weights weights(block);
  const Matrix x = RandomMatrix(23, block.hidden, 7), before = RandomMatrix(23, block.hidden, 8);
  const Ranks one{.threads = 2};
  const Matrix all = std::move(RunBlock(block, weights, Compute::kBf16, one, x.view, before).front());
  for (const auto& [begin, count] : {std::pair{0, 1}, {7, 1}, {22, 1}, {3, 11}}) {
    Matrix part_before(count, block.hidden);
    for (int r = 0; r < count; ++r)
      std::copy_n(before.view.Row(begin + r), block.hidden, part_before.view.Row(r));
    const Matrix part = std::move(
        RunBlock(block, weights, Compute::kBf16, one, x.view.Rows(begin, count), part_before).front());
    EXPECT_EQ(FirstDifference(part.view, all.view.Rows(begin, count)), "") << begin;
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, ExpertMlpTest, testing::ValuesIn(kBlocks),
                         [](const auto& info) { return fmt::format("{}", info.index); });

TEST(ExpertGroupsTest, PairsAreNumberedByExpertThenAsTheyCame) {
  ExpertGroups groups;
  const std::vector<int32_t> ids = {2, 0, 0, 3, 2, 3};
  groups.Build(ids, 5, [](int64_t pair) { return pair / 2; });
  EXPECT_EQ(groups.offsets, (std::vector<int64_t>{0, 2, 2, 4, 6, 6}));
  EXPECT_EQ(groups.rows, (std::vector<int32_t>{0, 1, 0, 2, 1, 2}));
  EXPECT_EQ(groups.slots, (std::vector<int32_t>{2, 0, 1, 4, 3, 5}));
  groups.Build({}, 2, [](int64_t pair) { return pair; });
  EXPECT_EQ(groups.pairs(), 0);
}

}  // namespace
}  // namespace plumbline
