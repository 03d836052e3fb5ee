#include "plumbline/pipelines/contract/model_outputs.h"

#include <gtest/gtest.h>

#include "plumbline/pipelines/contract/contract_test_util.h"

namespace plumbline {
namespace {

class ModelOutputsTest : public testing::Test {
 protected:
  void SetUp() override {
    runtime_.devices = {DeviceRef::Rank(0), DeviceRef::Rank(1)};
    const DeviceRef host = DeviceRef::Host();
    next_ = tensors_.Make(DType::kF32, {3, 10}, host);
    logits_ = tensors_.Make(DType::kF32, {6, 10}, host);
    wide_ = tensors_.Make(DType::kI64, {4}, host);
    narrow_ = tensors_.Make(DType::kU32, {4}, host);
    hidden_ = tensors_.Make(DType::kF32, {3, 8}, host);
    wide_.As<int64_t>()[3] = 6;
    narrow_.As<uint32_t>()[3] = 6;
  }
  // The tuple of section 2.3 with `hidden` hidden states.
  std::vector<InputTensor> Tuple(ReturnLogits mode, int hidden) {
    std::vector<InputTensor> tuple = {next_};
    if (mode != ReturnLogits::kLastToken) tuple.push_back(logits_);
    if (mode != ReturnLogits::kLastToken) tuple.push_back(mode == ReturnLogits::kAll ? narrow_ : wide_);
    tuple.insert(tuple.end(), hidden, hidden_);
    return tuple;
  }
  std::string Fault(const InputTree<InputTensor>& outputs, const OutputNames& names = {}) {
    const auto mapped = MapOutputs(outputs, runtime_, names);
    return mapped.has_value() ? "" : mapped.error().message;
  }
  BatchProcessorRuntime runtime_;
  Tensors tensors_;
  InputTensor next_, logits_, wide_, narrow_, hidden_;
};

TEST_F(ModelOutputsTest, EveryModeMapsItsTupleAndNoOtherCount) {
  using enum ReturnHiddenStates;
  const std::pair<ReturnHiddenStates, std::vector<int>> counts[] = {
      {kNone, {0}},          {kLast, {1}}, {kLastPerDevice, {2}},
      {kAllNormalized, {2}}, {kAll, {2}},  {kSelectedLayers, {2, 4, 6}}};
  for (ReturnLogits logits : {ReturnLogits::kLastToken, ReturnLogits::kVariable, ReturnLogits::kAll}) {
    for (const auto& [mode, right] : counts) {
      runtime_.return_logits = logits;
      runtime_.return_hidden_states = mode;
      for (int count = 0; count < 8; ++count) {
        const auto mapped = MapOutputs(Tuple(logits, count), runtime_);
        const bool wanted = std::find(right.begin(), right.end(), count) != right.end();
        ASSERT_EQ(mapped.has_value(), wanted) << count << " " << Name(mode);
        if (!wanted) continue;
        EXPECT_EQ(mapped->next_token_logits, next_);
        EXPECT_EQ(mapped->logits, logits == ReturnLogits::kLastToken ? next_ : logits_);
        EXPECT_EQ(mapped->logit_offsets.has_value(), logits != ReturnLogits::kLastToken);
        EXPECT_EQ(mapped->hidden_states.leaves.size(), static_cast<size_t>(count));
        EXPECT_FALSE(mapped->stage_boundary.has_value());
      }
    }
  }
}

TEST_F(ModelOutputsTest, NamesDecideAndNotTheOrder) {
  runtime_.return_logits = ReturnLogits::kAll;
  runtime_.return_hidden_states = ReturnHiddenStates::kSelectedLayers;
  InputTree<InputTensor> outputs;
  outputs.Add("hidden_states/device0/layer3", hidden_);
  outputs.Add("hidden_states/device1/layer3", hidden_);
  outputs.Add("max_logits", hidden_);
  outputs.Add("logit_offsets", narrow_);
  outputs.Add("logits", logits_);
  outputs.Add("next_token_logits", next_);
  const auto mapped = MapOutputs(outputs, runtime_, {.extra = {{"max_logits", DType::kF32, 2}}});
  ASSERT_TRUE(mapped.has_value()) << mapped.error().message;
  EXPECT_NE(mapped->hidden_states.Find("device1/layer3"), nullptr);
  EXPECT_NE(mapped->extra.Find("max_logits"), nullptr);
  EXPECT_EQ(Fault(outputs),
            "max_logits: got an output of this name, want one of the contract's (process_outputs)");
}

// Steps of a decoder that registers hidden states and outputs of its own, into one record.
TEST_F(ModelOutputsTest, RegisteredOutputsAreHeldToTheirNamesAndTypes) {
  runtime_.return_hidden_states = ReturnHiddenStates::kAll;
  const OutputNames names{.extra = {{"scores/ranks", DType::kI64, 1}},
                          .hidden_states = {"scored/replica0", "sampled/replica0", "silent/replica0"}};
  InputTree<InputTensor> outputs;
  outputs.Add("next_token_logits", next_);
  for (const std::string& name : names.hidden_states) outputs.Add("hidden_states/" + name, hidden_);
  outputs.Add("scores/ranks", wide_);
  OutputMapper mapper;
  const auto fault = [&] {
    const auto mapped = mapper.Map(outputs, runtime_, names);
    return mapped.has_value() ? "" : mapped.error().message;
  };
  for (int step = 0; step < 3; ++step) {
    outputs.leaves[2].value = tensors_.Make(DType::kF32, {step, 8}, DeviceRef::Host());
    const auto mapped = mapper.Map(outputs, runtime_, names);
    ASSERT_TRUE(mapped.has_value()) << mapped.error().message;
    EXPECT_EQ((*mapped)->hidden_states.leaves.size(), 3u);
    EXPECT_EQ(*(*mapped)->hidden_states.Find("sampled/replica0"), outputs.leaves[2].value);
    EXPECT_EQ(*(*mapped)->extra.Find("scores/ranks"), wide_);
    EXPECT_EQ((*mapped)->logits, next_);
  }
  const InputTree<InputTensor> right = outputs;
  outputs.leaves[4].value = narrow_;
  EXPECT_EQ(fault(), "scores/ranks: got dtype u32, want i64 (process_outputs)");
  outputs.leaves.pop_back();
  EXPECT_EQ(fault(), "scores/ranks: got no output, want the one that the decoder declares (process_outputs)");
  outputs = right;
  outputs.leaves.erase(outputs.leaves.begin() + 2);
  EXPECT_EQ(fault(), "hidden_states: got silent/replica0, want sampled/replica0 (process_outputs)");
  outputs = right;
  outputs.leaves[3].value = wide_;
  EXPECT_EQ(fault(), "silent/replica0: got dtype i64, want f32 (process_outputs)");
  outputs.leaves[3].path = outputs.leaves[2].path;
  EXPECT_EQ(fault(),
            "input tree: got leaf hidden_states/sampled/replica0 twice, want each once (process_outputs)");
  outputs = right;
  EXPECT_EQ(fault(), "");
}

TEST_F(ModelOutputsTest, AStageBoundaryComesBackAsItIs) {
  InputTree<InputTensor> outputs, wanted;
  outputs.Add("stage_boundary/h", hidden_);
  outputs.Add("stage_boundary/aux/residual", logits_);
  wanted.Add("h", hidden_);
  wanted.Add("aux/residual", logits_);
  EXPECT_EQ(Fault(outputs),
            "stage_boundary/h: got a stage boundary, want none from the last stage (process_outputs)");
  runtime_.is_last_stage = false;
  const auto mapped = MapOutputs(outputs, runtime_, {});
  ASSERT_TRUE(mapped.has_value()) << mapped.error().message;
  EXPECT_EQ(mapped->stage_boundary, wanted);
  EXPECT_FALSE(mapped->logits.has_value());
  outputs.Add("next_token_logits", next_);
  EXPECT_EQ(Fault(outputs),
            "next_token_logits: got an output, want stage_boundary/... alone before the last stage "
            "(process_outputs)");
  EXPECT_FALSE(MapOutputs(Tuple(ReturnLogits::kLastToken, 0), runtime_).has_value());
}

TEST_F(ModelOutputsTest, WrongTensorsAreRefusedByName) {
  const auto tree = [this](const InputTensor& next, const InputTensor& logits, const InputTensor& offsets) {
    InputTree<InputTensor> outputs;
    outputs.Add("next_token_logits", next);
    outputs.Add("logits", logits);
    outputs.Add("logit_offsets", offsets);
    return outputs;
  };
  runtime_.return_logits = ReturnLogits::kVariable;
  EXPECT_EQ(Fault(tree(next_, logits_, wide_)), "");
  EXPECT_EQ(Fault(tree(next_, logits_, narrow_)), "logit_offsets: got dtype u32, want i64 (process_outputs)");
  EXPECT_EQ(Fault(tree(wide_, logits_, wide_)),
            "next_token_logits: got dtype i64, want f32 (process_outputs)");
  EXPECT_EQ(Fault(tree(next_, hidden_, wide_)), "logits: got shape [3, 8], want [6, 10] (process_outputs)");
  wide_.As<int64_t>()[3] = 5;
  EXPECT_EQ(Fault(tree(next_, logits_, wide_)), "logits: got shape [6, 10], want [5, 10] (process_outputs)");
  EXPECT_EQ(Fault(tree(hidden_, logits_, tensors_.Make(DType::kI64, {3}, DeviceRef::Host()))),
            "logit_offsets: got 3 offsets, want 4 of 3 sequences (process_outputs)");
  runtime_.return_logits = ReturnLogits::kLastToken;
  EXPECT_EQ(Fault(tree(next_, logits_, wide_)),
            "logits: got an output, want none for these logits (process_outputs)");
  EXPECT_EQ(Fault({}), "next_token_logits: got no output, want one for these logits (process_outputs)");
  EXPECT_EQ(Fault({}, {.may_omit_logits = true}), "");
  EXPECT_EQ(MapOutputs(std::span<const InputTensor>(), runtime_).error().message,
            "outputs: got 0, want at least 1 (process_outputs)");
}

}  // namespace
}  // namespace plumbline
