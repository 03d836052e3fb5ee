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

}  // namespace plumbline
