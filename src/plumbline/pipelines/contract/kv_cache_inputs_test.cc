#include "plumbline/pipelines/contract/kv_cache_inputs.h"

#include <gtest/gtest.h>

#include "plumbline/pipelines/contract/contract_test_util.h"
#include "plumbline/pipelines/contract/replica_padder.h"

namespace plumbline {
namespace {

uint32_t Only(const InputTree<InputTensor>& tree, const std::string& path) {
  return tree.Find(path)->As<uint32_t>()[0];
}

TEST(KvCacheInputsTest, RandomBatchesAreTheNaiveOnes) {
  Deployment deployment({.replicas = 2});
  std::mt19937 random(5);
  for (int step = 0; step < 50; ++step) {
    const auto batches = deployment.RandomBatches(random);
    const InputTree<InputTensor>& tree = deployment.kv->Build(batches).value()->tree;
    int64_t width = 1;
    for (ReplicaBatch batch : batches) {
      for (const TextContext& c : batch) width = std::max(width, (c.current_position() + 63) / 64);
    }
    for (size_t r = 0; r < batches.size(); ++r) {
      const std::string at = fmt::format("replica{}/", r);
      const InputTensor& lengths = *tree.Find(at + "cache_lengths");
      const InputTensor& table = *tree.Find(at + "lookup_table");
      const auto sequences = static_cast<int64_t>(batches[r].size());
      ASSERT_EQ(lengths.shape, InputShape({sequences}));
      ASSERT_EQ(table.shape, InputShape({sequences, width}));
      EXPECT_EQ(table.device, deployment.runtime.kv_params.shards[r][0]);
      uint32_t longest_prompt = 0, longest_cache = 0;
      for (int64_t i = 0; i < sequences; ++i) {
        const TextContext& c = batches[r][i];
        EXPECT_EQ(lengths.As<uint32_t>()[i], c.processed_length);
        for (int64_t p = 0; p < width; ++p) {
          const bool reached = p * 64 < c.current_position();
          EXPECT_EQ(table.As<uint32_t>()[i * width + p], reached ? c.pages[p] : 0);
        }
        longest_prompt = std::max(longest_prompt, static_cast<uint32_t>(c.active_length));
        longest_cache = std::max(longest_cache, static_cast<uint32_t>(c.processed_length));
      }
      EXPECT_EQ(Only(tree, at + "max_prompt_length"), longest_prompt);
      EXPECT_EQ(Only(tree, at + "max_cache_length"), longest_cache);
      EXPECT_EQ(tree.Find(at + "page_stride")->As<int64_t>()[0], -1);
    }
    EXPECT_EQ(tree.Find("replica0/kv_blocks/0")->shape, InputShape({50, 128}));
    EXPECT_EQ(tree.Find("replica0/kv_blocks/1")->data, nullptr);
  }
}

class KvFaultTest : public testing::Test {
 protected:
  std::string Fault(TextContext context) {
    const std::vector<TextContext> contexts = {good_, context};
    const std::vector<ReplicaBatch> batches = {contexts};
    const auto built = deployment_.kv->Build(batches);
    return built.has_value() ? "" : built.error().message;
  }
  Deployment deployment_{{.replicas = 1, .shards = 1}};
  std::vector<int32_t> tokens_ = std::vector<int32_t>(300);
  std::vector<uint32_t> pages_ = {3, 4, 5, 6, 7};
  TextContext good_ = {.tokens = tokens_, .processed_length = 60, .active_length = 10, .pages = pages_};
};

TEST_F(KvFaultTest, EveryFaultIsItsOwnError) {
  EXPECT_EQ(Fault(good_), "");
  TextContext context = good_;
  context.pages = context.pages.first(1);
  EXPECT_EQ(Fault(context), "KV pages: got 1, want 2 for 70 tokens (replica 0, sequence 1)");
  pages_[1] = 50;
  EXPECT_EQ(Fault(good_), "KV page: got id 50, want at most 49 (replica 0, sequence 0)");
  pages_[1] = 0;
  EXPECT_EQ(Fault(good_), "KV page: got the null page 0, want 1 or above (replica 0, sequence 0)");
  pages_[1] = 4;
  context = good_;
  context.active_length = 0;
  EXPECT_EQ(Fault(context),
            "sequence length: got 60 + 0 tokens, want at least 0 + 1 and at most 200 in all (replica 0, "
            "sequence 1)");
  context.active_length = 150;
  EXPECT_NE(Fault(context), "");
  const std::vector<ReplicaBatch> two(2);
  EXPECT_EQ(deployment_.kv->Build(two).error().message,
            "replica batches: got 2, want 1, one for each data-parallel replica (KV cache inputs)");
  const std::vector<TextContext> six(6, good_);
  const std::vector<ReplicaBatch> many = {six};
  EXPECT_EQ(deployment_.kv->Build(many).error().message,
            "replica batch: got 6 sequences, want at most 5 (replica 0)");
}

TEST_F(KvFaultTest, BlocksThatAreNotTheParametersAreRefused) {
  const auto fault = [this](const InputTensor& blocks) {
    const auto made = KvCacheInputBuilder::Create(deployment_.runtime, std::span(&blocks, 1));
    return made.has_value() ? "" : made.error().message;
  };
  Tensors tensors;
  const DeviceRef rank = DeviceRef::Rank(0);
  EXPECT_EQ(fault(tensors.Make(DType::kU8, {50, 7}, rank)), "");
  EXPECT_EQ(fault(tensors.Make(DType::kU8, {49, 7}, rank)),
            "kv/replica0/kv_blocks/0: got u8 [49, 7] on rank 0, want u8 [50, page_bytes] on rank 0 (KV cache "
            "inputs)");
  EXPECT_NE(fault(tensors.Make(DType::kU8, {50}, rank)), "");
  EXPECT_NE(fault(tensors.Make(DType::kF32, {50, 7}, rank)), "");
  EXPECT_NE(fault(tensors.Make(DType::kU8, {50, 7}, DeviceRef::Host())), "");
  EXPECT_EQ(KvCacheInputBuilder::Create(deployment_.runtime, {}).error().message,
            "kv_blocks: got 0 buffers, want 1 (KV cache inputs)");
}

class ReplicaPadderTest : public testing::Test {
 protected:
  std::vector<TextContext> Decoding(size_t count, int64_t active = 1) {
    return std::vector<TextContext>(
        count, {.tokens = tokens_, .processed_length = 9, .active_length = active, .pages = pages_});
  }
  Deployment deployment_{{.replicas = 3, .shards = 1}};
  ReplicaPadder padder_{deployment_.runtime, 4};
  std::vector<int32_t> tokens_ = std::vector<int32_t>(20, 5);
  std::vector<uint32_t> pages_ = {3};
};

TEST_F(ReplicaPadderTest, ShortReplicasAreFilledAtTheirEnd) {
  for (int64_t active : {1, 4}) {
    const auto two = Decoding(2, active), three = Decoding(3, active);
    const std::vector<ReplicaBatch> batches = {two, {}, three};
    const auto padded = padder_.PadReplicas(batches, active);
    ASSERT_EQ(padded.size(), 3u);
    for (size_t r = 0; r < 3; ++r) {
      ASSERT_EQ(padded[r].size(), 3u);
      for (size_t i = 0; i < 3; ++i) {
        const TextContext& context = padded[r][i];
        EXPECT_EQ(context.is_padding, i >= batches[r].size());
        EXPECT_EQ(context.active_length, active);
        EXPECT_EQ(context.tokens.data() == tokens_.data(), !context.is_padding);
        if (!context.is_padding) continue;
        EXPECT_EQ(context.processed_length, 1);
        for (int32_t token : context.tokens) EXPECT_EQ(token, 0);
        for (uint32_t page : context.pages) EXPECT_EQ(page, kNullPage);
      }
    }
    const auto inputs = deployment_.Prepare(padded, active);
    ASSERT_TRUE(inputs.has_value()) << inputs.error().message;
    EXPECT_EQ((*inputs)->tokens.shape[0], 9 * active);
    for (uint32_t page : (*inputs)->kv.Find("replica1/lookup_table")->As<uint32_t>()) EXPECT_EQ(page, 0u);
  }
}

TEST_F(ReplicaPadderTest, EqualReplicasAndPrefillsStayAsTheyAre) {
  const auto two = Decoding(2), prefill = Decoding(1, 6);
  const std::vector<ReplicaBatch> equal = {two, two, two}, mixed = {two, prefill, {}}, none(3);
  EXPECT_EQ(padder_.PadReplicas(equal).data(), equal.data());
  EXPECT_EQ(padder_.PadReplicas(mixed).data(), mixed.data());
  EXPECT_EQ(padder_.PadReplicas(none).data(), none.data());
}

TEST_F(ReplicaPadderTest, RealRowsAreTheSameWithAndWithoutPadding) {
  const auto two = Decoding(2), three = Decoding(3);
  const std::vector<ReplicaBatch> batches = {three, two, two};
  const auto plain = deployment_.Prepare(batches).value();
  const auto values = [](const InputTensor& t) {
    return std::vector<int64_t>(t.As<int64_t>().begin(), t.As<int64_t>().end());
  };
  const std::vector<int64_t> tokens = values(plain->tokens), positions = values(*plain->token_positions);
  const auto padded = deployment_.Prepare(padder_.PadReplicas(batches)).value();
  const std::vector<int64_t> all = values(padded->tokens), all_positions = values(*padded->token_positions);
  const std::vector<int> real = {0, 1, 2, 3, 4, 6, 7};
  for (size_t i = 0; i < real.size(); ++i) {
    EXPECT_EQ(all[real[i]], tokens[i]);
    EXPECT_EQ(all_positions[real[i]], positions[i]);
  }
}

}  // namespace
}  // namespace plumbline
