#include "plumbline/pipelines/contract/decoder_batch_processor.h"

#include <gtest/gtest.h>

#include "plumbline/pipelines/contract/contract_test_util.h"

namespace plumbline {
namespace {

template <typename T>
std::vector<T> Values(const InputTensor& tensor) {
  const auto values = tensor.As<T>();
  return {values.begin(), values.end()};
}

// One sequence at a time, straight from the contract.
struct Naive {
  std::vector<int64_t> tokens, positions, splits = {0}, targets;
  std::vector<uint32_t> offsets = {0}, requests;
  std::vector<int32_t> context_lengths;

  explicit Naive(std::span<const ReplicaBatch> batches) {
    for (ReplicaBatch batch : batches) {
      int64_t length = 0;
      for (const TextContext& c : batch) {
        for (int64_t p = c.processed_length; p < c.processed_length + c.active_length; ++p) {
          tokens.push_back(c.tokens[p]);
          positions.push_back(p);
          targets.push_back(p + 1 < static_cast<int64_t>(c.tokens.size()) ? c.tokens[p + 1] : -1);
        }
        offsets.push_back(static_cast<uint32_t>(tokens.size()));
        requests.push_back(static_cast<uint32_t>(c.request));
        while (length % 64 != 0) ++length;
        for (int64_t p = 0; p < c.processed_length + c.active_length; ++p) ++length;
      }
      while (length % 64 != 0) ++length;
      context_lengths.push_back(static_cast<int32_t>(length));
      splits.push_back(splits.back() + static_cast<int64_t>(batch.size()));
    }
  }
};

void ExpectAsNaive(const DecoderInputs<InputTensor>& inputs, std::span<const ReplicaBatch> batches,
                   int64_t n) {
  const Naive naive(batches);
  EXPECT_EQ(Values<int64_t>(inputs.tokens), naive.tokens);
  EXPECT_EQ(Values<uint32_t>(inputs.input_row_offsets), naive.offsets);
  EXPECT_EQ(Values<int64_t>(*inputs.token_positions), naive.positions);
  EXPECT_EQ(Values<int64_t>(inputs.return_n_logits), std::vector<int64_t>{n});
  EXPECT_EQ(Values<int64_t>(*inputs.state->Find("targets")), naive.targets);
  EXPECT_EQ(Values<uint32_t>(*inputs.state->Find("requests")), naive.requests);
  for (size_t r = 0; r < batches.size(); ++r) {
    EXPECT_EQ(Values<int32_t>((*inputs.batch_context_lengths)[r])[0], naive.context_lengths[r]);
  }
  EXPECT_EQ(inputs.host_input_row_offsets.has_value(), batches.size() > 1);
  if (batches.size() == 1) return;
  EXPECT_EQ(Values<uint32_t>(*inputs.host_input_row_offsets), naive.offsets);
  EXPECT_EQ(Values<int64_t>(*inputs.data_parallel_splits), naive.splits);
}

TEST(DecoderBatchProcessorTest, RandomRaggedBatchesAreTheNaiveOnes) {
  std::mt19937 random(1);
  for (int replicas : {1, 2, 4}) {
    Deployment deployment(
        {.replicas = replicas, .shards = replicas == 1 ? 1 : 2, .every_field = replicas == 2});
    for (int step = 0; step < 60; ++step) {
      const int64_t n = 1 + static_cast<int64_t>(random() % 3);
      const auto batches = deployment.RandomBatches(random, n);
      const auto inputs = deployment.Prepare(batches, n);
      ASSERT_TRUE(inputs.has_value()) << inputs.error().message;
      ExpectAsNaive(**inputs, batches, n);
    }
  }
}

TEST(DecoderBatchProcessorTest, EmptyBatchesHaveTheOneOffset) {
  Deployment deployment({.replicas = 2});
  const std::vector<ReplicaBatch> none(2);
  const auto inputs = deployment.Prepare(none);
  ASSERT_TRUE(inputs.has_value()) << inputs.error().message;
  ExpectAsNaive(**inputs, none, 1);
  EXPECT_EQ((*inputs)->tokens.shape, InputShape({0}));
  EXPECT_EQ(Values<uint32_t>(*(*inputs)->host_input_row_offsets), std::vector<uint32_t>{0});
  EXPECT_EQ(Values<int64_t>(*(*inputs)->data_parallel_splits), (std::vector<int64_t>{0, 0, 0}));
}

TEST(DecoderBatchProcessorTest, EveryFieldIsThereInCanonicalOrder) {
  Deployment deployment({.every_field = true});
  std::mt19937 random(2);
  const auto inputs = deployment.Prepare(deployment.RandomBatches(random));
  ASSERT_TRUE(inputs.has_value()) << inputs.error().message;
  for (bool present : PresentFields(**inputs)) EXPECT_TRUE(present);
  std::vector<std::string> names;
  ForEachLeaf(**inputs, [&](const LeafName& name, const InputTensor&) { names.push_back(ToString(name)); });
  std::vector<std::string> bound;
  for (const auto& leaf :
       deployment.processor->get_symbolic_inputs(deployment.runtime.kv_params, {}).leaves) {
    bound.push_back(leaf.path);
  }
  EXPECT_EQ(names, bound);
}

TEST(DecoderBatchProcessorTest, BuffersStayWhereTheyAre) {
  Deployment deployment({.every_field = true});
  std::mt19937 random(3);
  const DecoderInputs<InputTensor>* first = deployment.Prepare(deployment.RandomBatches(random)).value();
  std::vector<void*> before;
  ForEachLeaf(*first, [&](const LeafName&, const InputTensor& leaf) { before.push_back(leaf.data); });
  const DecoderInputs<InputTensor>* second = deployment.Prepare(deployment.RandomBatches(random)).value();
  std::vector<void*> after;
  ForEachLeaf(*second, [&](const LeafName&, const InputTensor& leaf) { after.push_back(leaf.data); });
  EXPECT_EQ(before, after);
}

TEST(DecoderBatchProcessorTest, SymbolicInputsBeforeBindingAreTheDefaults) {
  Deployment deployment({.replicas = 1, .shards = 2});
  const auto processor = DecoderBatchProcessor::Create({}, deployment.runtime).value();
  std::vector<std::string> names;
  for (const auto& leaf :
       processor->get_symbolic_inputs(deployment.runtime.kv_params, deployment.runtime.devices).leaves) {
    names.push_back(leaf.path + " " + ToString(leaf.value));
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "tokens i64 [total_seq_len] on rank 0",
                       "input_row_offsets u32 [input_row_offsets_len] on rank 0",
                       "return_n_logits i64 [return_n_logits] on host",
                       "signals/0 u8 [signal_bytes] on rank 0",
                       "signals/1 u8 [signal_bytes] on rank 1",
                       "kv/replica0/kv_blocks/0 u8 [50, page_bytes] on rank 0",
                       "kv/replica0/kv_blocks/1 u8 [50, page_bytes] on rank 1",
                       "kv/replica0/cache_lengths u32 [replica0_batch_size] on rank 0",
                       "kv/replica0/lookup_table u32 [replica0_batch_size, max_num_pages] on rank 0",
                       "kv/replica0/max_prompt_length u32 [1] on host",
                       "kv/replica0/max_cache_length u32 [1] on host",
                       "kv/replica0/page_stride i64 [1] on host",
                   }));
  const std::vector<ReplicaBatch> none(1);
  EXPECT_EQ(processor->prepare_initial_token_inputs(none).error().message,
            "decoder inputs: got none bound, want bind_input_tree first (prepare_initial_token_inputs)");
}

TEST(DecoderBatchProcessorTest, TheStateStoreBoundsADimensionFirst) {
  Deployment deployment({.replicas = 2});
  const std::vector<std::string> dims = {"total_seq_len", "input_row_offsets_len", "replica1_batch_size",
                                         "max_num_pages", "return_n_logits",       "requests",
                                         "lora_groups"};
  // 2 replicas of max(5, min(300, 5 * 200)) tokens; 200 tokens of pages of 64.
  EXPECT_EQ(deployment.processor->max_dims(dims, deployment.runtime.kv_params).value(),
            (DimSizes{{"total_seq_len", 600},
                      {"input_row_offsets_len", 11},
                      {"replica1_batch_size", 5},
                      {"max_num_pages", 4},
                      {"return_n_logits", 1},
                      {"requests", 10},
                      {"lora_groups", 10}}));
  struct Narrow : TargetStore {
    using TargetStore::TargetStore;
    std::optional<int64_t> MaxDim(std::string_view dim) const override {
      return dim == "total_seq_len" ? std::optional<int64_t>(7) : std::nullopt;
    }
  } narrow(600, 10, DeviceRef::Rank(0));
  deployment.processor->state_store = &narrow;
  const std::vector<std::string> rows = {"total_seq_len"}, unknown = {"requests"};
  EXPECT_EQ(deployment.processor->max_dims(rows, deployment.runtime.kv_params)->at("total_seq_len"), 7);
  EXPECT_EQ(deployment.processor->max_dims(unknown, deployment.runtime.kv_params).error().message,
            "dimension requests: got no largest size, want one of the state store or the runtime (max_dims)");
}

TEST(DecoderBatchProcessorTest, LargestStepFollowsTheBudget) {
  BatchProcessorRuntime runtime = {.max_batch_size = 4, .max_seq_len = 10, .max_batch_input_tokens = 20};
  EXPECT_EQ(runtime.MaxStepTokens(), 20);
  runtime.enable_chunked_prefill = false;
  EXPECT_EQ(runtime.MaxStepTokens(), 30);
  runtime.max_batch_input_tokens = 1000;
  EXPECT_EQ(runtime.MaxStepTokens(), 40);
  runtime.data_parallel_degree = 3;
  EXPECT_EQ(runtime.MaxStepTokens(), 120);
  runtime = {.max_batch_size = 30, .max_seq_len = 10, .max_batch_input_tokens = 20};
  EXPECT_EQ(runtime.MaxStepTokens(), 30);
  EXPECT_EQ(runtime.GlobalBatchSize(), 30);
}

TEST(DecoderBatchProcessorTest, ContextLengthsOnDevicesAreOneADevice) {
  for (int replicas : {1, 2}) {
    Deployment deployment({.replicas = replicas, .shards = 2 / replicas});
    deployment.config.device_context_length_dtype = DType::kI64;
    auto made = MakeDecoderBatchProcessor(deployment.registration, deployment.config, deployment.runtime);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    deployment.processor = std::move(made).value();
    deployment.processor->state_store = deployment.store.get();
    std::mt19937 random(4);
    for (int step = 0; step < 10; ++step) {
      const auto batches = deployment.RandomBatches(random);
      const auto inputs = deployment.Prepare(batches);
      ASSERT_TRUE(inputs.has_value()) << inputs.error().message;
      const Naive naive(batches);
      for (int device = 0; device < 2; ++device) {
        const InputTensor& length = (*(*inputs)->batch_context_lengths)[device];
        EXPECT_EQ(length.As<int64_t>()[0], naive.context_lengths[replicas == 1 ? 0 : device]);
        EXPECT_EQ(length.device, DeviceRef::Rank(device));
      }
    }
  }
  Deployment deployment({.replicas = 2, .shards = 2});
  deployment.config.device_context_length_dtype = DType::kI32;
  EXPECT_EQ(
      MakeDecoderBatchProcessor(deployment.registration, deployment.config, deployment.runtime)
          .error()
          .message,
      "batch_context_lengths: got 2 replicas on 4 devices, want 1 or 4 for lengths on devices (declared "
      "inputs)");
}

}  // namespace
}  // namespace plumbline
