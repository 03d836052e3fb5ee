#include "plumbline/pipelines/step_plan.h"

#include <algorithm>
#include <utility>

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
  // Stable, and of few: an insertion sort, which needs no memory.
  for (size_t i = 1; i < entries.size(); ++i) {
    for (size_t j = i; j > 0 && entries[j].kind < entries[j - 1].kind; --j)
      std::swap(entries[j], entries[j - 1]);
  }
}

}  // namespace plumbline
