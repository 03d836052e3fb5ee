#include "plumbline/pipelines/contract/check_decoder_inputs.h"

#include <gtest/gtest.h>

#include <functional>

#include "plumbline/pipelines/contract/contract_test_util.h"

namespace plumbline {
namespace {

// What a decoder declares, against the field table.
class DeclaredInputsTest : public testing::Test {
 protected:
  // The error of the declaration after `change`.
  std::string Fault(const std::function<void(DecoderInputs<InputSpec>&)>& change) {
    DecoderInputs<InputSpec> declared = *deployment_.processor->declared();
    change(declared);
    const Status status = CheckDeclaredInputs(declared, deployment_.config, deployment_.runtime);
    return status.has_value() ? "" : status.error().message;
  }
  // The error of a changed leaf, which must begin with the leaf's name.
  void ExpectRefused(size_t number, const std::function<void(InputSpec&)>& change, std::string_view what) {
    std::string name;
    const std::string fault = Fault([&](DecoderInputs<InputSpec>& declared) {
      size_t next = 0;
      ForEachLeaf(declared, [&](const LeafName& leaf, InputSpec& spec) {
        if (next++ != number) return;
        name = ToString(leaf);
        change(spec);
      });
    });
    EXPECT_TRUE(fault.starts_with(fmt::format("{}: got {}", name, what)))
        << name << ", " << what << ": " << fault;
  }
  Deployment deployment_{{.every_field = true}};
};

TEST_F(DeclaredInputsTest, EveryRowOfTheTableIsHeld) {
  using enum DecoderField;
  std::vector<LeafName> names;
  ForEachLeaf(*deployment_.processor->declared(),
              [&](const LeafName& name, const InputSpec&) { names.push_back(name); });
  const std::set<DecoderField> free = {kKv, kState, kEp, kConstants, kScratch, kStageBoundary};
  for (size_t i = 0; i < names.size(); ++i) {
    ExpectRefused(
        i, [](InputSpec& spec) { spec.device = DeviceRef::Rank(77); }, "device rank 77");
    if (names[i].field == kKv || names[i].field == kState) continue;
    if (names[i].field == kLora && names[i].index == 3) continue;  // an adapter: any
    const auto flip = [](InputSpec& spec) {
      const bool carried = spec.residence == Residence::kCarried;
      spec.residence = carried ? Residence::kRankLocal : Residence::kCarried;
    };
    ExpectRefused(i, flip, "a ");
    if (free.contains(names[i].field)) continue;
    ExpectRefused(
        i, [](InputSpec& spec) { spec.dtype = DType::kF16; }, "dtype f16");
    ExpectRefused(
        i, [](InputSpec& spec) { spec.shape.push_back(2); }, "shape ");
    ExpectRefused(
        i, [](InputSpec& spec) { spec.shape.clear(); }, "shape ");
    const auto move = [](InputSpec& spec) {
      spec.device = spec.device.is_host() ? DeviceRef::Rank(0) : DeviceRef::Host();
    };
    ExpectRefused(i, move, "device ");
    if (names[i].field == kSignals) continue;  // of any length
    ExpectRefused(
        i, [](InputSpec& spec) { spec.shape[0] = "another"; }, "shape ");
  }
}

TEST_F(DeclaredInputsTest, WhatIsPresentFollowsTheDeployment) {
  EXPECT_EQ(Fault([](auto&) {}), "");
  EXPECT_EQ(
      Fault([](auto& d) { d.token_positions.reset(); }),
      "token_positions: got it undeclared, want it declared where takes_token_positions is set (declared "
      "inputs)");
  EXPECT_EQ(
      Fault([](auto& d) { d.host_input_row_offsets.reset(); }),
      "host_input_row_offsets: got it undeclared, want it declared where replicas run in parallel (declared "
      "inputs)");
  EXPECT_EQ(Fault([](auto& d) { d.data_parallel_splits.reset(); }).substr(0, 20), "data_parallel_splits");
  EXPECT_EQ(Fault([](auto& d) { d.signals.reset(); }),
            "signals: got it undeclared, want it declared where the decoder takes signal buffers (declared "
            "inputs)");
  EXPECT_EQ(Fault([](auto& d) { d.batch_context_lengths.reset(); }).substr(0, 21), "batch_context_lengths");
  EXPECT_EQ(Fault([](auto& d) { d.signals->pop_back(); }),
            "signals: got 3 leaves, want 4, one for each device (declared inputs)");
  EXPECT_EQ(Fault([](auto& d) { d.batch_context_lengths->pop_back(); }),
            "batch_context_lengths: got 1 leaves, want 2, one for each replica (declared inputs)");
  EXPECT_EQ(Fault([](auto& d) { d.vision->indices.pop_back(); }),
            "vision/indices: got 3 leaves, want 4, one for each device (declared inputs)");
  EXPECT_EQ(Fault([](auto& d) { d.lora->resize(2); }),
            "lora: got 2 leaves, want at least ids, group offsets and rows (declared inputs)");
  deployment_.config = {.vocab = 1000, .takes_signals = false};
  EXPECT_EQ(
      Fault([](auto& d) { d.token_positions.reset(); }),
      "signals: got it declared, want it undeclared where the decoder takes no signal buffers (declared "
      "inputs)");
  deployment_.config.always_signal_buffers = true;
  const auto rest = [](auto& d) {
    d.token_positions.reset();
    d.batch_context_lengths.reset();
  };
  EXPECT_EQ(Fault(rest), "");
}

// A step's inputs, against the declaration.
class StepInputsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(8);
    for (int64_t sequences = 0; sequences < 6;) {
      batches_ = deployment_.RandomBatches(random, 2);
      sequences =
          static_cast<int64_t>(std::min(batches_[0].size() * 6, batches_[0].size() + batches_[1].size()));
    }
    inputs_ = deployment_.Prepare(batches_).value();
  }
  std::string Fault(const std::function<void(DecoderInputs<InputTensor>&)>& change) {
    DecoderInputs<InputTensor> inputs = *inputs_;
    change(inputs);
    const StepLimits limits = {.vocab = 1000, .max_seq_len = 200, .total_num_pages = 50};
    const Status status = CheckDecoderInputs(inputs, *deployment_.processor->declared(), limits);
    return status.has_value() ? "" : status.error().message;
  }
  // The fault while element `at` of a leaf is `value`.
  template <typename T>
  std::string With(const InputTensor& leaf, int64_t at, T value) {
    const T before = leaf.As<T>()[at];
    leaf.As<T>()[at] = value;
    const std::string fault = Fault([](auto&) {});
    leaf.As<T>()[at] = before;
    return fault;
  }
  Deployment deployment_{{.every_field = true}};
  std::vector<ReplicaBatch> batches_;
  const DecoderInputs<InputTensor>* inputs_ = nullptr;
};

TEST_F(StepInputsTest, EveryLeafKeepsItsDTypeDeviceAndShape) {
  EXPECT_EQ(Fault([](auto&) {}), "");
  const size_t leaves = Flatten(*inputs_).size();
  for (size_t number = 0; number < leaves; ++number) {
    const auto refused = [&](std::string_view what, const std::function<void(InputTensor&)>& change) {
      std::string name;
      bool elsewhere = false;
      const std::string fault = Fault([&](DecoderInputs<InputTensor>& inputs) {
        size_t next = 0;
        ForEachLeaf(inputs, [&](const LeafName& leaf, InputTensor& tensor) {
          if (next++ != number) return;
          name = ToString(leaf);
          elsewhere = tensor.data == nullptr;  // another rank's: nothing is known of it
          change(tensor);
        });
      });
      EXPECT_TRUE(elsewhere || fault.starts_with(name + ": got " + std::string(what)))
          << name << ": " << fault;
    };
    refused("dtype f16", [](InputTensor& tensor) { tensor.dtype = DType::kF16; });
    refused("device rank 9", [](InputTensor& tensor) { tensor.device = DeviceRef::Rank(9); });
    refused("shape []", [](InputTensor& tensor) { tensor.shape = {}; });
    refused("no data", [](InputTensor& tensor) {
      tensor.shape = {3, 3};
      tensor.data = nullptr;
    });
  }
}

TEST_F(StepInputsTest, FieldsAreThoseDeclared) {
  EXPECT_EQ(Fault([](auto& i) { i.vision.reset(); }),
            "vision: got none, want the declared input (decoder inputs)");
  EXPECT_EQ(Fault([](auto& i) { i.signals->pop_back(); }),
            "signals: got 3 leaves, want the declared 4 (decoder inputs)");
  EXPECT_EQ(Fault([](auto& i) { i.kv.leaves[0].path = fmt::format("x"); }),
            "kv/x: got this leaf, want kv/replica0/kv_blocks/0 as declared (decoder inputs)");
  Deployment plain({});
  DecoderInputs<InputTensor> inputs = *inputs_;
  EXPECT_EQ(CheckSameStructure(inputs, *plain.processor->declared()).error().message,
            "vision: got an input, want none: it is not declared (decoder inputs)");
}

TEST_F(StepInputsTest, OneNameIsOneSize) {
  const int64_t tokens = inputs_->tokens.shape[0];
  EXPECT_EQ(
      Fault([&](auto& i) { i.token_positions->shape = {tokens - 1}; }),
      fmt::format(
          "token_positions: got total_seq_len = {}, want {} as in the inputs before it (decoder inputs)",
          tokens - 1, tokens));
  const DimSizes largest = {{"total_seq_len", tokens - 1}};
  const Status status =
      CheckDecoderInputs(*inputs_, *deployment_.processor->declared(), StepLimits{.largest = &largest});
  EXPECT_EQ(status.error().message,
            fmt::format("tokens: got total_seq_len = {}, want at most the declared {} (decoder inputs)",
                        tokens, tokens - 1));
}

TEST_F(StepInputsTest, ValuesAreHeldToTheContract) {
  const auto& i = *inputs_;
  const int64_t batch = i.input_row_offsets.shape[0] - 1, tokens = i.tokens.shape[0];
  const auto offsets = i.input_row_offsets.As<uint32_t>();
  EXPECT_EQ(With(i.tokens, 1, int64_t{1000}), "tokens: got id 1000, want 0 to 999 (row 1)");
  EXPECT_EQ(With(i.tokens, 1, int64_t{-999}), "tokens: got id -999, want 0 to 999 (row 1)");
  EXPECT_EQ(With(i.input_row_offsets, 0, 1u), "input_row_offsets: got 1 first, want 0 (decoder inputs)");
  EXPECT_EQ(With(i.input_row_offsets, 1, 0u),
            "input_row_offsets: got a sequence of 0 tokens, want at least 1 (sequence 0)");
  EXPECT_EQ(
      With(i.input_row_offsets, batch, offsets[batch] + 1),
      fmt::format("input_row_offsets: got {} last, want the {} tokens (decoder inputs)", tokens + 1, tokens));
  EXPECT_EQ(With(*i.host_input_row_offsets, 1, offsets[1] + 1),
            "host_input_row_offsets: got other offsets, want those of input_row_offsets (decoder inputs)");
  EXPECT_EQ(With(*i.data_parallel_splits, 0, int64_t{1}),
            "data_parallel_splits: got 1 first, want 0 (decoder inputs)");
  EXPECT_EQ(With(*i.data_parallel_splits, 1, int64_t{99}).substr(0, 34),
            "data_parallel_splits: got " + fmt::format("{} after ", batch).substr(0, 8));
  EXPECT_EQ(With(*i.data_parallel_splits, 2, batch + 1),
            fmt::format("data_parallel_splits: got {} last, want the {} sequences (decoder inputs)",
                        batch + 1, batch));
  for (int64_t n : {int64_t{0}, int64_t{-1}, int64_t{150}}) {
    EXPECT_EQ(With(i.return_n_logits, 0, n).substr(0, 20), "return_n_logits: got") << n;
  }
  EXPECT_EQ(With(*i.token_positions, 0, int64_t{200}), "token_positions: got 200, want 0 to 199 (row 0)");
  const InputTensor& lengths = *i.kv.Find("replica0/cache_lengths");
  EXPECT_EQ(With(lengths, 0, 199u).substr(0, 26), "kv/replica0/cache_lengths:");
  EXPECT_EQ(With(lengths, 0, lengths.As<uint32_t>()[0] ^ 1u).substr(0, 20), "token_positions: got");
  EXPECT_EQ(With(*i.kv.Find("replica0/lookup_table"), 0, 50u),
            "kv/replica0/lookup_table: got page 50, want at most 49 (decoder inputs)");
}

// What the processor refuses of its callers.
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

}  // namespace
}  // namespace plumbline
