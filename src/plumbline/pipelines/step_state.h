// What the engine wants of a step's rows, as per-request state that every rank takes each step (a
// RequestStateStore).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

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
enum class StepStateLeaf : uint8_t { kTargets, kKindSequences, kTopK, kMaxLogits, kPageCopies };

class StepState : public RequestStateStore {
 public:
  StepState(int replicas, int64_t max_sequences);

  const InputTree<InputSpec>& state_inputs() const override { return specs_; }
  std::optional<int64_t> MaxDim(std::string_view dim) const override;
  Status Fill(const FlatBatch& batch, std::span<InputTensor* const> state) override;

  // The step that Fill describes next: its entries, replica after replica, one for each of the batch's
  // contexts that is no padding, and the pages to copy, [n] of (replica, from, to).
  void Set(std::span<const StepEntry> entries, std::span<const std::array<int64_t, 3>> copies);

 private:
  void Add(const StepEntry& entry);
  void AddPadding(size_t replica, int64_t rows);

  InputTree<InputSpec> specs_;
  int replicas_;
  int64_t max_copies_;
  std::span<const StepEntry> entries_;
  std::vector<int64_t> targets_, kind_sequences_, page_copies_;
  int64_t top_k_ = 0, max_logits_ = 0;
};

}  // namespace plumbline
