// Which rows of which sequences a step runs, laid out for the decoder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/nn/step.h"
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

// The arrays a DecoderStep refers to, rebuilt each step without allocating once they have grown.
class StepInputs {
 public:
  void Build(std::span<const StepEntry> entries);
  DecoderStep Step() const;
  std::span<const uint32_t> row_offsets() const { return row_offsets_u32_; }
  int64_t rows() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  std::vector<int32_t> tokens_, positions_, row_offsets_, cache_lengths_;
  std::vector<uint32_t> row_offsets_u32_;
  std::vector<void* const*> pages_;
};

}  // namespace plumbline
