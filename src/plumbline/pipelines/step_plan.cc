#include "plumbline/pipelines/step_plan.h"

#include <algorithm>

namespace plumbline {

void PlanStep(std::span<Sequence* const> sequences, int64_t row_budget, std::vector<StepEntry>& entries) {
  entries.clear();
  for (Sequence* sequence : sequences) {
    if (sequence->finished) continue;
    const RowKind kind = sequence->NextKind();
    int64_t rows = sequence->NextRows();
    if (kind != RowKind::kSample) {
      rows = std::min(rows, row_budget);
      row_budget -= rows;
    }
    if (rows > 0) entries.push_back({.sequence = sequence, .kind = kind, .rows = rows});
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const StepEntry& a, const StepEntry& b) { return a.kind < b.kind; });
}

void StepInputs::Build(std::span<const StepEntry> entries) {
  tokens_.clear();
  positions_.clear();
  cache_lengths_.clear();
  pages_.clear();
  row_offsets_.assign(1, 0);
  row_offsets_u32_.assign(1, 0);
  for (const StepEntry& entry : entries) {
    const Sequence& sequence = *entry.sequence;
    const std::vector<int32_t>& known = sequence.result.tokens;
    for (int64_t i = 0; i < entry.rows; ++i) {
      const size_t index = sequence.processed + i;
      tokens_.push_back(index < known.size() ? known[index] : sequence.drafts[index - known.size()]);
      positions_.push_back(static_cast<int32_t>(sequence.processed + i));
    }
    cache_lengths_.push_back(static_cast<int32_t>(sequence.processed));
    pages_.push_back(sequence.pages.data());
    row_offsets_.push_back(static_cast<int32_t>(tokens_.size()));
    row_offsets_u32_.push_back(static_cast<uint32_t>(tokens_.size()));
  }
}

DecoderStep StepInputs::Step() const {
  return {.tokens = tokens_,
          .positions = positions_,
          .batch = {.row_offsets = row_offsets_, .cache_lengths = cache_lengths_, .pages = pages_}};
}

}  // namespace plumbline
