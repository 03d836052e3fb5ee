#include "plumbline/pipelines/step_outputs.h"

#include <array>
#include <string>

namespace plumbline {
namespace {

constexpr std::array<const char*, kRowKinds> kKindNames = {"scored", "sampled", "silent"};
constexpr const char* kLogprobs = "scores/logprobs";
constexpr const char* kRanks = "scores/ranks";
constexpr const char* kTopIds = "scores/top_ids";
constexpr const char* kTopValues = "scores/top_values";
constexpr const char* kMaxLogits = "max_logits";

}  // namespace

OutputNames StepOutputNames(const HiddenStatesShape& hidden) {
  OutputNames names{.extra = {{kLogprobs, DType::kF32, 1},
                              {kRanks, DType::kI64, 1},
                              {kTopIds, DType::kI32, 2},
                              {kTopValues, DType::kF32, 2},
                              {kMaxLogits, DType::kF32, 3}}};
  if (hidden.mode == ReturnHiddenStates::kNone) return names;
  for (const char* kind : kKindNames) {
    for (int replica = 0; replica < hidden.replicas; ++replica) {
      const std::string name = fmt::format("{}/replica{}", kind, replica);
      if (hidden.mode != ReturnHiddenStates::kSelectedLayers) {
        names.hidden_states.push_back(name);
        continue;
      }
      for (int32_t layer : hidden.layers)
        names.hidden_states.push_back(fmt::format("{}/layer{}", name, layer));
    }
  }
  return names;
}

StepOutputs::StepOutputs(const DecoderConfig& config, const HiddenStatesShape& hidden)
    : hidden_(hidden),
      vocab_(config.vocab),
      width_(config.hidden),
      layers_(config.layers),
      heads_(config.heads) {
  const OutputNames names = StepOutputNames(hidden);
  tree_.Add("next_token_logits", {});
  first_hidden_ = tree_.leaves.size();
  for (const std::string& name : names.hidden_states) tree_.Add("hidden_states/" + name, {});
  first_score_ = tree_.leaves.size();
  for (const OutputType& type : names.extra) tree_.Add(type.name, {});
  Clear();
}

void StepOutputs::Set(size_t leaf, DType dtype, const InputShape& shape, const void* data) {
  // Outputs are read only; the record that inputs share with them is not const.
  tree_.leaves[leaf].value = {.dtype = dtype, .shape = shape, .data = const_cast<void*>(data)};
}

void StepOutputs::Clear() {
  SetLogits({nullptr, 0, vocab_});
  for (size_t leaf = first_hidden_; leaf < first_score_; ++leaf) Set(leaf, DType::kF32, {0, width_}, nullptr);
  Set(first_score_, DType::kF32, {0}, nullptr);
  Set(first_score_ + 1, DType::kI64, {0}, nullptr);
  Set(first_score_ + 2, DType::kI32, {0, 0}, nullptr);
  Set(first_score_ + 3, DType::kF32, {0, 0}, nullptr);
  SetMaxLogits({}, 0);
}

void StepOutputs::SetLogits(MatrixView<const float> logits) {
  PLUMBLINE_CHECK(logits.stride == logits.cols);
  Set(0, DType::kF32, {logits.rows, logits.cols}, logits.data);
}

void StepOutputs::SetScores(const RowScores& scores) {
  const int64_t rows = std::ssize(scores.logprobs()), top = scores.Top();
  top_ids_.clear();
  top_values_.clear();
  for (const TopEntry& entry : scores.top()) {
    top_ids_.push_back(entry.id);
    top_values_.push_back(entry.value);
  }
  Set(first_score_, DType::kF32, {rows}, scores.logprobs().data());
  Set(first_score_ + 1, DType::kI64, {rows}, scores.ranks().data());
  Set(first_score_ + 2, DType::kI32, {rows, top}, top_ids_.data());
  Set(first_score_ + 3, DType::kF32, {rows, top}, top_values_.data());
}

void StepOutputs::SetHiddenStates(RowKind kind, std::span<const MatrixView<const float>> states) {
  if (states.empty()) return;
  PLUMBLINE_CHECK(std::ssize(states) == hidden_.replicas * hidden_.Tensors());
  size_t leaf = first_hidden_ + hidden_.First(kind, 0);
  for (const MatrixView<const float>& state : states) {
    PLUMBLINE_CHECK(state.stride == state.cols);
    Set(leaf++, DType::kF32, {state.rows, state.cols}, state.data);
  }
}

void StepOutputs::SetMaxLogits(std::span<const float> max_logits, int64_t sequences) {
  Set(first_score_ + 4, DType::kF32, {layers_, sequences, heads_}, max_logits.data());
}

ScoredRows ScoresOf(const ModelOutputs& outputs) {
  const InputTensor& values = *outputs.extra.Find(kTopValues);
  return {.logprobs = outputs.extra.Find(kLogprobs)->As<const float>(),
          .ranks = outputs.extra.Find(kRanks)->As<const int64_t>(),
          .top_ids = outputs.extra.Find(kTopIds)->As<const int32_t>(),
          .top_values = values.As<const float>(),
          .top_k = values.shape[1]};
}

std::span<const float> MaxLogitsOf(const ModelOutputs& outputs) {
  return outputs.extra.Find(kMaxLogits)->As<const float>();
}

MatrixView<const float> MatrixOf(const InputTensor& tensor) {
  return {tensor.As<const float>().data(), tensor.shape[0], tensor.shape[1]};
}

}  // namespace plumbline
