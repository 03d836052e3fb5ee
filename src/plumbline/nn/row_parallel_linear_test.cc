#include "plumbline/nn/row_parallel_linear.h"

#include <gtest/gtest.h>

#include "plumbline/kernels/gemm/gemm_testing.h"
#include "plumbline/nn/rank_test_util.h"

namespace plumbline {
namespace {

using namespace gemm_testing;

constexpr int64_t kOut = 70;  // two panels and a bit

struct Layer {
  std::string name;
  int64_t heads, kv_heads, head_dim;  // an o_proj; heads 0: a down_proj of `columns`
  int64_t columns;
  DType dtype;

  int64_t K() const { return heads > 0 ? heads * head_dim : columns; }
  int64_t Leaf() const { return LeafLength(heads > 0 ? heads / kv_heads * head_dim : 0, dtype); }
  DecoderConfig Config() const {
    const bool o_proj = heads > 0;
    return {.hidden = kOut,
            .layers = 1,
            .heads = o_proj ? heads : 8,
            .kv_heads = o_proj ? kv_heads : 8,
            .head_dim = o_proj ? head_dim : 2,
            .intermediate = K(),
            .vocab = 10};
  }
  std::vector<Range> Inputs(int tp) const {
    std::vector<Range> inputs;
    for (int r = 0; r < tp; ++r) {
      const Range part = heads > 0 ? HeadsOf(Config(), tp, r) : IntermediateOf(Config(), tp, r);
      const int64_t width = heads > 0 ? head_dim : 1;
      inputs.push_back({part.begin * width, part.end * width});
    }
    return inputs;
  }
};

const std::vector<Layer> kLayers = {
    {"leaves a group wide", 8, 8, 64, 0, DType::kF32},
    {"several leaves a head", 8, 8, 256, 0, DType::kBF16},
    {"three KV heads", 9, 3, 32, 0, DType::kF16},
    {"a leaf that holds all query heads of a KV head", 8, 1, 32, 0, DType::kF32},
    {"two KV heads that ranks share", 8, 2, 64, 0, DType::kQ8_0},
    {"cuts between heads that are no leaves", 12, 12, 48, 0, DType::kQ8_0},
    {"fewer columns than a leaf", 4, 4, 24, 0, DType::kQ4_0},
    {"a feed-forward with a short last leaf", 0, 0, 0, 1300, DType::kF32},
    {"a feed-forward with fewer leaves than ranks", 0, 0, 0, 512, DType::kQ4_K},
    {"an odd feed-forward", 0, 0, 0, 777, DType::kBF16},
};

class RowParallelLinearTest : public testing::TestWithParam<Layer> {
 protected:
  Result<RowParallelLinear> Load(const RankContext& rank, const RawTensor& raw, Compute compute, int tp,
                                 bool bias) const {
    const Layer& layer = GetParam();
    RowParallelLinear linear = RowParallelLinear::Cut(layer.K(), layer.Leaf(), layer.Inputs(tp));
    for (const Range& columns : linear.PartsOf(rank.tensor.rank())) {
      ASSIGN_OR_RETURN(
          PackedWeight weight,
          PackedWeight::Pack(rank.kernel, raw.Columns(columns.begin, columns.end), compute, layer.Leaf()));
      linear.parts.push_back({.k_begin = columns.begin, .weight = std::move(weight)});
    }
    if (bias) {
      for (int64_t i = 0; i < kOut; ++i) linear.bias.push_back(0.125f * static_cast<float>(i % 7) - 0.3f);
    }
    return linear;
  }

  // What each rank has afterwards where y began as `before`.
  std::vector<Matrix> Run(const Weight& weight, Compute compute, int tp, bool bias, MatrixView<const float> x,
                          const Matrix& before) const {
    std::vector<Matrix> results;
    for (int r = 0; r < tp; ++r) results.emplace_back(x.rows, kOut);
    const DecoderConfig config = GetParam().Config();
    const Status status = RunOnRanks(
        config, {.tp = tp},
        [&](const RankContext& rank) -> Status {
          ASSIGN_OR_RETURN(const RowParallelLinear linear, Load(rank, weight.tensor, compute, tp, bias));
          ASSIGN_OR_RETURN(DecoderWorkspace workspace,
                           DecoderWorkspace::Allocate(config, rank.shard,
                                                      {.tokens = x.rows,
                                                       .sum_nodes = static_cast<int64_t>(linear.parts.size()),
                                                       .exchanges = linear.Exchanges()}));
          const Range& own = linear.inputs[rank.tensor.rank()];
          const MatrixView<float>& y = results[rank.tensor.rank()].view;
          for (int64_t row = 0; row < x.rows; ++row) std::copy_n(before.view.Row(row), kOut, y.Row(row));
          return linear.Accumulate(rank, {x.data + own.begin, x.rows, own.size(), x.stride}, workspace, y);
        },
        /*threads=*/2);
    EXPECT_TRUE(status.has_value()) << status.error().message;
    return results;
  }
};

TEST_P(RowParallelLinearTest, BitsAreThoseOfOneRank) {
  const Layer& layer = GetParam();
  const Weight weight = PlainWeight(layer.dtype, kOut, layer.K(), 11);
  for (const Compute compute : kComputes) {
    for (const int64_t tokens : {1, 5, 37}) {
      const bool bias = tokens != 5;
      const Matrix x = RandomMatrix(tokens, layer.K(), 3), before = RandomMatrix(tokens, kOut, 5);
      const std::vector<Matrix> one = Run(weight, compute, 1, bias, x.view, before);
      ASSERT_NE(FirstDifference(one[0].view, before.view), "");
      for (int tp : {2, 3, 4, 8}) {
        if (!CheckDegrees(layer.Config(), {.tp = tp})) continue;
        const std::vector<Matrix> ranks = Run(weight, compute, tp, bias, x.view, before);
        for (int r = 0; r < tp; ++r) {
          ASSERT_EQ(FirstDifference(ranks[r].view, one[0].view), "")
              << layer.name << ", tp " << tp << ", rank " << r << ", " << tokens << " tokens";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, RowParallelLinearTest, testing::ValuesIn(kLayers),
                         [](const auto& info) { return fmt::format("{}", info.index); });

// That the layers above are what their names say.
TEST(RowParallelLinearCuts, CoverTheCasesTheyAreMeantFor) {
  const auto cut = [](size_t layer, int tp) {
    return RowParallelLinear::Cut(kLayers[layer].K(), kLayers[layer].Leaf(), kLayers[layer].Inputs(tp));
  };
  EXPECT_FALSE(cut(0, 4).Exchanges());
  EXPECT_EQ(cut(2, 2).leaves.count(0), 1);
  EXPECT_EQ(cut(2, 2).PartsOf(0), (std::vector<Range>{{0, 192}}));
  EXPECT_TRUE(cut(3, 8).Exchanges());
  EXPECT_TRUE(cut(3, 8).PartsOf(1).empty());
  EXPECT_TRUE(cut(4, 8).Exchanges());
  EXPECT_TRUE(cut(5, 3).Exchanges());
  EXPECT_TRUE(cut(6, 4).Exchanges());
  EXPECT_FALSE(cut(7, 8).Exchanges());
  EXPECT_EQ(cut(7, 4).PartsOf(0), (std::vector<Range>{{0, 512}}));
  EXPECT_TRUE(cut(8, 3).PartsOf(2).empty());
  // Uneven: leaves 0 to 2, then 3 to 5; the first rank brings two nodes, the second two.
  EXPECT_EQ(cut(7, 2).PartsOf(0), (std::vector<Range>{{0, 512}, {512, 768}}));
  EXPECT_EQ(cut(7, 2).PartsOf(1), (std::vector<Range>{{768, 1024}, {1024, 1300}}));
}

}  // namespace
}  // namespace plumbline
