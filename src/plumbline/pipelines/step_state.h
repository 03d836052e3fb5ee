// What the engine wants of a step's rows, as per-request state that every rank takes each step (a
// RequestStateStore).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "plumbline/nn/decoder_declaration.h"
#include "plumbline/pipelines/contract/request_state_store.h"
#include "plumbline/pipelines/prefix_reuse.h"
#include "plumbline/pipelines/step_plan.h"

namespace plumbline {

// The state's leaves, in order, all i64 on the host:
//
//   targets         [total_seq_len]   the next prompt token of a scored row, whose log-prob is wanted; -1:
//   none kind_sequences  [replicas * 3]    how many of each replica's sequences are scored, sampled, silent;
//   in this
//                                     order they come, padding among the silent ones
//   top_k           [1]               alternatives of a scored row
//   max_logits      [1]               whether attention maxima are wanted
//   page_copies     [page_copies, 3]  (replica, from, to): pages to copy before the step
//
// Where the decoder declares state of its own (DecoderDeclaration::state), follow
//
//   request_slots   u32 [request_slots] on the host: each sequence's slot, 0 for padding
//   deviceD/NAME    [slots, shape] of every rank, rank-local: the pools, updated in place
//
// A request has one slot from admission to its end; a rank zeroes it when the request's first row runs.
enum class StepStateLeaf : uint8_t {
  kTargets,
  kKindSequences,
  kTopK,
  kMaxLogits,
  kPageCopies,
  kRequestSlots
};

class StepState : public RequestStateStore {
 public:
  // `declared`: of the decoder, on `ranks` ranks.
  StepState(int replicas, int64_t max_sequences, std::span<const DeclaredState> declared = {}, int ranks = 1);

  const InputTree<InputSpec>& state_inputs() const override { return specs_; }
  std::optional<int64_t> MaxDim(std::string_view dim) const override;
  Status Fill(const FlatBatch& batch, std::span<InputTensor* const> state) override;

  // The controller's own pools, before the first Fill of a decoder that declares state; and the step that
  // Fill describes next: its entries, replica after replica, one for each of the batch's contexts that is no
  // padding, and the pages to copy, [n] of (replica, from, to).
  void BindPools(std::span<const InputTensor> state) { pools_ = state; }  // RankTensors::state
  void Set(std::span<const StepEntry> entries, std::span<const std::array<int64_t, 3>> copies);

 private:
  void Add(const StepEntry& entry);
  void AddPadding(size_t replica, int64_t rows);

  InputTree<InputSpec> specs_;
  int replicas_;
  int64_t max_copies_, max_slots_;
  bool has_slots_;
  std::span<const InputTensor> pools_;
  std::vector<uint32_t> slots_;
  std::span<const StepEntry> entries_;
  std::vector<int64_t> targets_, kind_sequences_, page_copies_;
  int64_t top_k_ = 0, max_logits_ = 0;
};

}  // namespace plumbline
