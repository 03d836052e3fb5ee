// Which rows of which sequences a step runs, laid out for the decoder.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/pipelines/sequence.h"

namespace plumbline {

struct StepEntry {
  Sequence* sequence = nullptr;
  RowKind kind = RowKind::kSilent;
  int64_t rows = 0;
};

// At most `row_budget` rows of prompts, first sequences first, and of every sequence that is generating its
// last token's row and its drafts'. Entries, which replace what is there, are grouped by kind: scored, then
// sampled, then silent.
void PlanStep(std::span<Sequence* const> sequences, int64_t row_budget, std::vector<StepEntry>& entries);

// What runs at once on all replicas. A step is one of these, or several that follow one another through the
// pipeline's stages.
struct MicroBatch {
  std::vector<StepEntry> entries;              // replica after replica
  std::vector<std::array<int64_t, 3>> copies;  // (replica, from, to): pages to copy first
};

}  // namespace plumbline
