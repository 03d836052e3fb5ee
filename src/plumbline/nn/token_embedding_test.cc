#include "plumbline/nn/token_embedding.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "plumbline/kernels/embedding/embedding.h"
#include "plumbline/kernels/gemm/gemm_testing.h"
#include "plumbline/nn/rank_test_util.h"

namespace plumbline {
namespace {

using namespace gemm_testing;

constexpr int64_t kHidden = 64, kVocab = 2500;  // three tiles
const DecoderConfig kConfig = {.hidden = kHidden,
                               .layers = 1,
                               .heads = 8,
                               .kv_heads = 8,
                               .head_dim = 8,
                               .intermediate = 256,
                               .vocab = kVocab};

TEST(TokenEmbeddingTest, EveryRankGetsItsReplicasRowsWhoeverHoldsThem) {
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    const Weight table = PlainWeight(dtype, kVocab, kHidden, 5);
    ThreadPool pool(1);
    const KernelContext context{pool, SupportedIsas().back()};
    const PackedWeight whole = PackedWeight::Pack(context, table.tensor, Compute::kBf16, 256).value();
    std::mt19937 random(3);
    for (int round = 0; round < 4; ++round) {
      for (const ParallelDegrees& d : {ParallelDegrees{.tp = 2},
                                       {.dp = 2},
                                       {.tp = 2, .dp = 2},
                                       {.cp = 3},
                                       {.dp = 4},
                                       {.tp = 4, .dp = 2},
                                       {.dp = 2, .cp = 2}}) {
        std::vector<int64_t> first = {0};  // of each replica's rows
        for (int replica = 0; replica < d.dp; ++replica)
          first.push_back(first.back() + (random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 20)));
        std::vector<int64_t> tokens(first.back());
        for (int64_t& token : tokens) token = round == 0 ? 1024 : static_cast<int64_t>(random() % kVocab);
        Matrix want(first.back(), kHidden);
        Embed(context, whole, tokens, 0, want.view);
        const Status status = RunOnRanks(kConfig, d, [&](const RankContext& rank) -> Status {
          TokenEmbedding embedding{.vocab = kVocab};
          const Range& rows = rank.shard.vocab;
          if (rows.size() > 0) {
            embedding.weight = std::make_shared<PackedWeight>(
                PackedWeight::Pack(rank.kernel, table.tensor.Rows(rows.begin, rows.end), Compute::kBf16, 256)
                    .value());
          }
          const Range own{first[rank.data.rank()], first[rank.data.rank() + 1]};
          ASSIGN_OR_RETURN(DecoderWorkspace workspace,
                           DecoderWorkspace::Allocate(kConfig, rank.shard,
                                                      {.tokens = own.size(), .all_tokens = first.back()}));
          Matrix got(own.size(), kHidden);
          RETURN_IF_ERROR(embedding.Forward(rank, {.tokens = tokens, .own = own}, workspace, got.view));
          EXPECT_EQ(FirstDifference(got.view, want.view.Rows(own.begin, own.size())), "");
          return {};
        });
        ASSERT_TRUE(status.has_value()) << status.error().message;
      }
    }
  }
}

}  // namespace
}  // namespace plumbline
