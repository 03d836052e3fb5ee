#include "plumbline/pipelines/step_state.h"

#include <algorithm>
#include <utility>

#include "plumbline/base/check.h"

namespace plumbline {

StepState::StepState(int replicas, int64_t max_sequences, std::span<const DeclaredState> declared, int ranks)
    : replicas_(replicas),
      max_copies_(replicas * max_sequences),
      max_slots_(replicas * max_sequences),
      has_slots_(!declared.empty()) {
  const auto add = [this](const char* name, std::vector<Dim> shape) {
    specs_.Add(name, {.dtype = DType::kI64, .shape = std::move(shape), .device = DeviceRef::Host()});
  };
  add("targets", {"total_seq_len"});
  add("kind_sequences", {3 * replicas});
  add("top_k", {1});
  add("max_logits", {1});
  add("page_copies", {"page_copies", 3});
  page_copies_.reserve(3 * max_copies_);
  if (!has_slots_) return;
  specs_.Add("request_slots",
             {.dtype = DType::kU32, .shape = {"request_slots"}, .device = DeviceRef::Host()});
  for (int rank = 0; rank < ranks; ++rank) {
    for (const DeclaredState& state : declared) {
      std::vector<Dim> shape = {1 + max_sequences};
      shape.insert(shape.end(), state.shape.begin(), state.shape.end());
      specs_.Add(fmt::format("device{}/{}", rank, state.name), {.dtype = state.dtype,
                                                                .shape = std::move(shape),
                                                                .device = DeviceRef::Rank(rank),
                                                                .residence = Residence::kRankLocal});
    }
  }
}

std::optional<int64_t> StepState::MaxDim(std::string_view dim) const {
  if (dim == "page_copies") return max_copies_;
  if (dim == "request_slots" && has_slots_) return max_slots_;
  return std::nullopt;
}

void StepState::Set(std::span<const StepEntry> entries, std::span<const std::array<int64_t, 3>> copies) {
  entries_ = entries;
  page_copies_.clear();
  for (const auto& copy : copies) page_copies_.insert(page_copies_.end(), copy.begin(), copy.end());
}

void StepState::Add(const StepEntry& entry) {
  const Sequence& sequence = *entry.sequence;
  ++kind_sequences_[3 * sequence.replica + static_cast<int>(entry.kind)];
  slots_.push_back(sequence.slot);
  if (sequence.request->max_logits) max_logits_ = 1;
  if (entry.kind == RowKind::kScore) top_k_ = std::max<int64_t>(top_k_, sequence.request->top_logprobs);
  const std::vector<int32_t>& tokens = sequence.result.tokens;
  for (int64_t i = 0; i < entry.rows; ++i) {
    const size_t next = sequence.processed + i + 1;
    targets_.push_back(entry.kind == RowKind::kScore && next < tokens.size() ? tokens[next] : -1);
  }
}

void StepState::AddPadding(size_t replica, int64_t rows) {
  ++kind_sequences_[3 * replica + static_cast<int>(RowKind::kSilent)];
  slots_.push_back(0);
  targets_.insert(targets_.end(), rows, -1);
}

Status StepState::Fill(const FlatBatch& batch, std::span<InputTensor* const> state) {
  kind_sequences_.assign(3 * replicas_, 0);
  targets_.clear();
  slots_.clear();
  top_k_ = max_logits_ = 0;
  size_t next = 0;
  for (size_t replica = 0; replica < batch.replica_batches.size(); ++replica) {
    for (const TextContext& context : batch.replica_batches[replica]) {
      if (context.is_padding) {
        AddPadding(replica, context.active_length);
      } else {
        PLUMBLINE_CHECK(next < entries_.size());
        Add(entries_[next++]);
      }
    }
  }
  PLUMBLINE_CHECK(next == entries_.size() && batch.tokens == std::ssize(targets_) &&
                  state.size() == specs_.leaves.size());
  const auto view = [&state](StepStateLeaf leaf, const InputShape& shape, int64_t* data) {
    *state[static_cast<int>(leaf)] = {
        .dtype = DType::kI64, .shape = shape, .data = data, .device = DeviceRef::Host()};
  };
  view(StepStateLeaf::kTargets, {std::ssize(targets_)}, targets_.data());
  view(StepStateLeaf::kKindSequences, {std::ssize(kind_sequences_)}, kind_sequences_.data());
  view(StepStateLeaf::kTopK, {1}, &top_k_);
  view(StepStateLeaf::kMaxLogits, {1}, &max_logits_);
  view(StepStateLeaf::kPageCopies, {std::ssize(page_copies_) / 3, 3}, page_copies_.data());
  if (!has_slots_) return {};
  constexpr auto kSlots = static_cast<size_t>(StepStateLeaf::kRequestSlots);
  *state[kSlots] = {.dtype = DType::kU32,
                    .shape = {std::ssize(slots_)},
                    .data = slots_.data(),
                    .device = DeviceRef::Host()};
  PLUMBLINE_CHECK(pools_.size() == state.size());
  for (size_t i = kSlots + 1; i < state.size(); ++i) *state[i] = pools_[i];
  return {};
}

}  // namespace plumbline
