#include "plumbline/pipelines/contract/check_decoder_inputs.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>

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

// Of each name the first leaf that has more of it than was declared.
TEST_F(StepInputsTest, EveryNamedDimensionHasALargestSize) {
  std::map<std::string, std::pair<std::string, int64_t>> first;  // name -> leaf and size
  ForEachLeafPair(*inputs_, *deployment_.processor->declared(),
                  [&](const LeafName& name, const InputTensor& tensor, const InputSpec& spec) {
                    for (int d = 0; d < tensor.shape.rank() && tensor.data != nullptr; ++d) {
                      if (spec.shape[d].is_named() && name.field != DecoderField::kScratch)
                        first.try_emplace(spec.shape[d].name, ToString(name), tensor.shape[d]);
                    }
                  });
  int64_t tried = 0;
  for (const auto& [dim, place] : first) {
    if (place.second == 0) continue;  // no images in this step
    const DimSizes largest = {{dim, place.second - 1}};
    const Status status =
        CheckDecoderInputs(*inputs_, *deployment_.processor->declared(), StepLimits{.largest = &largest});
    ASSERT_FALSE(status.has_value()) << dim;
    EXPECT_EQ(status.error().message,
              fmt::format("{}: got {} = {}, want at most the declared {} (decoder inputs)", place.first, dim,
                          place.second, place.second - 1));
    ++tried;
  }
  EXPECT_GE(tried, 10);
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

}  // namespace
}  // namespace plumbline
