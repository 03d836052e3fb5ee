// What the batch processor refuses before it packs a step.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "plumbline/pipelines/contract/contract_test_util.h"

namespace plumbline {
namespace {

class PrepareFaultTest : public testing::Test {
 protected:
  std::string Fault(std::span<const ReplicaBatch> batches, int64_t n = 1) {
    const auto inputs =
        deployment_.processor->prepare_initial_token_inputs(batches, built_, n, deployment_.brought);
    return inputs.has_value() ? "" : inputs.error().message;
  }
  std::string Fault(const TextContext& context, int64_t n = 1) {
    const std::vector<TextContext> contexts = {context};
    const std::vector<ReplicaBatch> batches = {contexts, {}};
    return Fault(batches, n);
  }
  void SetUp() override {
    const std::vector<ReplicaBatch> batches = {std::span(&good_, 1), {}};
    built_ = deployment_.kv->Build(batches).value();
    deployment_.boundary.leaves[0].value.shape = {3, 8};
  }
  Deployment deployment_{{.every_field = true}};
  std::vector<int32_t> tokens_ = std::vector<int32_t>(300, 1);
  std::vector<uint32_t> pages_ = {3, 4};
  TextContext good_ = {.tokens = tokens_, .processed_length = 5, .active_length = 3, .pages = pages_};
  const KvCacheInputs* built_ = nullptr;
};

TEST_F(PrepareFaultTest, BadContextsAreRefused) {
  EXPECT_EQ(Fault(good_), "");
  const std::vector<ReplicaBatch> one(1), three(3);
  EXPECT_EQ(
      Fault(one),
      "replica batches: got 1, want 2, one for each data-parallel replica (prepare_initial_token_inputs)");
  EXPECT_NE(Fault(three), "");
  EXPECT_EQ(Fault(good_, 0), "return_n_logits: got 0, want at least 1 (prepare_initial_token_inputs)");
  EXPECT_EQ(Fault(good_, 4),
            "return_n_logits: got 4, want at most the 3 active tokens (replica 0, sequence 0)");
  TextContext bad = good_;
  bad.active_length = 0;
  EXPECT_EQ(Fault(bad), "active_length: got 0, want at least 1 (replica 0, sequence 0)");
  bad.active_length = INT64_MAX;
  EXPECT_EQ(Fault(bad),
            fmt::format("active window: got 5 + {} tokens, want at most the 300 known (replica 0, "
                        "sequence 0)",
                        INT64_MAX));
  bad.active_length = 196;
  EXPECT_EQ(Fault(bad), "sequence length: got 201, want at most max_seq_len 200 (replica 0, sequence 0)");
  bad = good_;
  bad.processed_length = -1;
  EXPECT_EQ(Fault(bad), "processed_length: got -1, want 0 or more (replica 0, sequence 0)");
  tokens_[6] = 1000;
  EXPECT_EQ(Fault(good_), "tokens: got id 1000, want 0 to 999 (replica 0, sequence 0)");
  tokens_[6] = -999;
  EXPECT_EQ(Fault(good_), "tokens: got id -999, want 0 to 999 (replica 0, sequence 0)");
  const std::vector<TextContext> six(6, good_);
  const std::vector<ReplicaBatch> many = {six, {}};
  EXPECT_EQ(Fault(many), "replica batch: got 6 sequences, want at most max_batch_size 5 (replica 0)");
}

TEST_F(PrepareFaultTest, MoreTokensThanDeclaredAreRefused) {
  const TextContext long_one = {
      .tokens = tokens_, .processed_length = 0, .active_length = 150, .pages = pages_};
  const std::vector<TextContext> five(5, long_one);
  const std::vector<ReplicaBatch> batches = {five, {}};
  EXPECT_EQ(Fault(batches), "total_seq_len: got 750 tokens, want at most 600 (prepare_initial_token_inputs)");
}

TEST_F(PrepareFaultTest, WhatOthersBringIsHeldToo) {
  auto& processor = *deployment_.processor;
  const auto missing = [this](std::string_view field) {
    EXPECT_EQ(Fault(good_), fmt::format("{}: got none, want the declared input (decoder inputs)", field));
  };
  processor.scratch = nullptr;
  missing("scratch");
  processor.constant_inputs = nullptr;
  missing("constants");
  processor.bind_ep_comm_initializer(nullptr);
  missing("ep");
  deployment_.brought.lora = {};
  missing("lora");
  deployment_.brought.vision = nullptr;
  missing("vision");
  built_ = nullptr;
  missing("kv");
}

TEST_F(PrepareFaultTest, AnUndeclaredOrWrongInputIsRefused) {
  deployment_.processor->state_store = nullptr;
  EXPECT_EQ(Fault(good_), "state: got none, want the declared input (decoder inputs)");
  TargetStore on_host(600, 10, DeviceRef::Host());
  deployment_.processor->state_store = &on_host;
  EXPECT_EQ(Fault(good_), "state/targets: got device host, want rank 0 (decoder inputs)");
  deployment_.processor->state_store = deployment_.store.get();
  deployment_.lora[1].dtype = DType::kI32;
  EXPECT_EQ(Fault(good_), "lora/1: got dtype i32, want u32 (decoder inputs)");
  Deployment plain({});
  plain.processor->constant_inputs = deployment_.constants.get();
  const std::vector<ReplicaBatch> none(2);
  EXPECT_EQ(plain.Prepare(none).error().message,
            "constants: got an input, want none: it is not declared (decoder inputs)");
}

TEST_F(PrepareFaultTest, BindingKeepsToTheDescriptors) {
  InputTree<InputSpec> tree = ToTree(*deployment_.processor->declared());
  EXPECT_TRUE(deployment_.processor->bind_input_tree(tree).has_value());
  Deployment plain({});
  EXPECT_EQ(plain.processor->bind_input_tree(tree).error().message,
            "vision: got an input, want none: the decoder does not declare it (bind_input_tree)");
  const InputTree<InputSpec> fewer = ToTree(*plain.processor->declared());
  EXPECT_EQ(deployment_.processor->bind_input_tree(fewer).error().message,
            "vision/embeddings/0: got input_row_offsets, want the input that the decoder declares "
            "(bind_input_tree)");
  tree.leaves[0].value.dtype = DType::kI32;
  EXPECT_EQ(
      deployment_.processor->bind_input_tree(tree).error().message,
      "tokens: got i32 [total_seq_len] on rank 0, want i64 [total_seq_len] on rank 0 (bind_input_tree)");
}

// One fault of every kind, and no two say the same.
TEST_F(PrepareFaultTest, EachKindOfFaultHasAnErrorOfItsOwn) {
  using Inputs = DecoderInputs<InputTensor>;
  const std::vector<ReplicaBatch> right = {std::span(&good_, 1), {}};
  const Inputs step =
      *deployment_.processor->prepare_initial_token_inputs(right, built_, 1, deployment_.brought).value();
  const auto changed = [&](void (*change)(Inputs&)) {
    Inputs inputs = step;
    change(inputs);
    const Status status = CheckDecoderInputs(inputs, *deployment_.processor->declared(), {});
    return status.has_value() ? "" : status.error().message;
  };
  TextContext empty = good_, far = good_;
  empty.active_length = 0;
  far.processed_length = 400;
  const std::vector<ReplicaBatch> one(1);
  Deployment plain({});
  DeclaredBuffers buffers;
  ASSERT_TRUE(buffers.Declare("tokens", DType::kI64, {4}, DeviceRef::Rank(0)).has_value());
  const std::pair<std::string, std::string> faults[] = {
      {"replica batches", Fault(one)},
      {"active_length", Fault(empty)},
      {"active window", Fault(far)},
      {"return_n_logits", Fault(good_, 0)},
      {"return_n_logits", Fault(good_, 4)},
      {"token_positions", changed([](Inputs& i) { i.token_positions->dtype = DType::kI32; })},
      {"token_positions", changed([](Inputs& i) {
         i.token_positions->shape = {3, 1};
       })},
      {"token_positions", changed([](Inputs& i) { i.token_positions->device = DeviceRef::Host(); })},
      {"token_positions", changed([](Inputs& i) { i.token_positions->data = nullptr; })},
      {"token_positions", changed([](Inputs& i) { i.token_positions->shape = {2}; })},
      {"token_positions", changed([](Inputs& i) { i.token_positions.reset(); })},
      {"vision", CheckSameStructure(step, *plain.processor->declared()).error().message},
      {"signals", changed([](Inputs& i) { i.signals->pop_back(); })},
      {"tokens", buffers.View("tokens", {5}).error().message},
      {"signals", buffers.View("signals", {1}).error().message},
  };
  std::set<std::string> messages;
  for (const auto& [field, message] : faults) {
    EXPECT_TRUE(message.starts_with(field + ": got ")) << field << ": " << message;
    EXPECT_TRUE(messages.insert(message).second) << message;
  }
}

}  // namespace
}  // namespace plumbline
