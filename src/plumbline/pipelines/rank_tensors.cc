#include "plumbline/pipelines/rank_tensors.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace plumbline {
namespace {

std::span<std::byte> BytesOf(const InputTensor& tensor) {
  return {static_cast<std::byte*>(tensor.data), static_cast<size_t>(tensor.Bytes())};
}

InputTree<InputTensor> ConstantLeaves(const InputTree<InputSpec>& types, const Decoder& decoder,
                                      DeviceRef own) {
  InputTree<InputTensor> leaves;
  size_t next = 0;
  for (const auto& [path, spec] : types.leaves) {
    InputTensor tensor{.dtype = spec.dtype, .device = spec.device};
    if (spec.device == own) {
      std::vector<int64_t> shape;
      for (const Dim& dim : spec.shape) shape.push_back(dim.size);
      tensor.shape = InputShape(std::span<const int64_t>(shape));
      // Inputs are one record, whether a decoder writes them or not.
      tensor.data = const_cast<float*>(decoder.constants[next++].data());
    }
    leaves.Add(path, tensor);
  }
  return leaves;
}

}  // namespace

Result<RankTensors> RankTensors::Make(std::shared_ptr<const Decoder> decoder, const DeclaredStep& step) {
  const DecoderInputs<InputSpec>& declared = *step.processor->declared();
  const DeviceRef own = DeviceRef::Rank(step.rank);
  RankTensors tensors;
  tensors.constant_views_ = decoder->Constants();
  if (declared.signals) {
    RETURN_IF_ERROR(tensors.AllocateSignals(*declared.signals, decoder->config.declares.signals->bytes, own));
  }
  if (declared.constants) {
    PLUMBLINE_CHECK(decoder->constants.size() == decoder->config.declares.constants.size());
    InputTree<InputTensor> leaves = ConstantLeaves(*declared.constants, *decoder, own);
    tensors.constants_ = std::make_unique<ConstantInputs>(std::move(leaves), std::move(decoder));
  }
  if (declared.scratch) {
    const std::string tokens = "total_seq_len";
    ASSIGN_OR_RETURN(const DimSizes largest, step.processor->max_dims({&tokens, 1}, step.runtime.kv_params));
    ASSIGN_OR_RETURN(tensors.scratch_, DecoderScratch::Allocate(*declared.scratch, {&own, 1}, largest));
    for (const auto& leaf : tensors.scratch_.inputs().leaves) {
      if (leaf.value.device == own) tensors.scratch_views_.push_back(BytesOf(leaf.value));
    }
  }
  if (declared.state) RETURN_IF_ERROR(tensors.AllocateState(*declared.state, own));
  return tensors;
}

Status RankTensors::AllocateSignals(const std::vector<InputSpec>& types, int64_t bytes, DeviceRef own) {
  ASSIGN_OR_RETURN(signal_memory_, Buffer::Allocate(bytes));
  for (const InputSpec& spec : types) {
    InputTensor& tensor = signals_.emplace_back(
        InputTensor{.dtype = spec.dtype, .shape = InputShape({bytes}), .device = spec.device});
    if (spec.device != own) continue;
    tensor.data = signal_memory_.data();
    signal_view_ = BytesOf(tensor);
  }
  return {};
}

Status RankTensors::AllocateState(const InputTree<InputSpec>& types, DeviceRef own) {
  for (const auto& [path, spec] : types.leaves) {
    InputTensor& tensor = state_.emplace_back(InputTensor{.dtype = spec.dtype, .device = spec.device});
    if (spec.residence != Residence::kRankLocal || spec.device != own) continue;
    std::vector<int64_t> shape;
    for (const Dim& dim : spec.shape) shape.push_back(dim.size);
    tensor.shape = InputShape(std::span<const int64_t>(shape));
    ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(tensor.Bytes()));
    tensor.data = buffer.data();
    state_memory_.push_back(std::move(buffer));
    state_views_.push_back(BytesOf(tensor));
    slots_ = shape.front();
  }
  return {};
}

void RankTensors::Bind(DecoderInputs<InputTensor>& inputs) const {
  if (inputs.constants) *inputs.constants = constants_->inputs();
  if (inputs.scratch) *inputs.scratch = scratch_.inputs();
  if (inputs.signals) *inputs.signals = signals_;
  for (size_t i = 0; i < state_.size(); ++i) inputs.state->leaves[i].value = state_[i];
}

void RankTensors::ZeroSlot(uint32_t slot) {
  for (const std::span<std::byte> pool : state_views_) {
    const size_t bytes = pool.size() / slots_;
    std::memset(pool.data() + slot * bytes, 0, bytes);
  }
}

DeclaredViews RankTensors::Views(std::span<const uint32_t> slots) const {
  return {.constants = constant_views_,
          .scratch = scratch_views_,
          .signals = signal_view_,
          .state = state_views_,
          .state_slots = slots};
}

}  // namespace plumbline
