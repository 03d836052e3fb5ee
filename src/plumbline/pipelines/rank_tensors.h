// What a rank itself holds of the inputs that its decoder declares: constants, scratch, signals, state of
// requests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plumbline/nn/decoder.h"
#include "plumbline/pipelines/contract/constant_inputs.h"
#include "plumbline/pipelines/contract/decoder_scratch.h"
#include "plumbline/pipelines/declared_step.h"

namespace plumbline {

class RankTensors {
 public:
  RankTensors() = default;
  // The decoder's constants, and memory for the rest, zeroed. Leaves of other ranks have no data.
  static Result<RankTensors> Make(std::shared_ptr<const Decoder> decoder, const DeclaredStep& step);

  // Puts them where they belong among the inputs.
  void Bind(DecoderInputs<InputTensor>& inputs) const;

  const ConstantInputs* constants() const { return constants_.get(); }  // null where none are declared
  const DecoderScratch& scratch() const { return scratch_; }
  // One for each rank, none where none are declared.
  std::span<const InputTensor> signals() const { return signals_; }
  // One for each leaf of `state`; those that a step carries are empty.
  std::span<const InputTensor> state() const { return state_; }

  // Slots of the state's pools are below it.
  int64_t slots() const { return slots_; }
  void ZeroSlot(uint32_t slot);

  // `slots`: of the replica's sequences.
  DeclaredViews Views(std::span<const uint32_t> slots) const;

 private:
  Status AllocateSignals(const std::vector<InputSpec>& types, int64_t bytes, DeviceRef own);
  Status AllocateState(const InputTree<InputSpec>& types, DeviceRef own);

  std::unique_ptr<ConstantInputs> constants_;
  DecoderScratch scratch_;
  std::vector<InputTensor> signals_, state_;
  Buffer signal_memory_;
  std::vector<Buffer> state_memory_;
  int64_t slots_ = 0;
  std::vector<std::span<const float>> constant_views_;
  std::span<std::byte> signal_view_;
  std::vector<std::span<std::byte>> scratch_views_, state_views_;
};

}  // namespace plumbline
