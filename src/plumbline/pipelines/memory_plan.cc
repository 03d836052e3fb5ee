#include "plumbline/pipelines/memory_plan.h"

#include <algorithm>

#include "plumbline/pipelines/engine.h"

namespace plumbline {
namespace {

constexpr int64_t kFloat = sizeof(float);

// Of the prefix cache: PageResults of the widest list that is kept.
int64_t PageResultBytes(int64_t page_size) {
  constexpr int64_t kToken = kFloat + static_cast<int64_t>(sizeof(int64_t)) +
                             PrefixReuse::kMaxTopK * static_cast<int64_t>(sizeof(std::pair<int32_t, float>)) +
                             static_cast<int64_t>(sizeof(int32_t));
  return page_size * kToken;
}

}  // namespace

MemoryPlan PlanMemory(const DecoderConfig& config, const MemoryParts& parts, const EngineOptions& options) {
  const int threads = parts.threads;
  const int64_t draft_rows = options.generates ? options.draft_rows : 0;
  const int64_t sampled = options.batch_size + draft_rows;
  const int64_t rows = sampled + Engine::StepRows(config, options, config.max_positions, threads, draft_rows);
  MemoryPlan plan{.limit = options.memory_limit, .weight_bytes = parts.weight_bytes};
  plan.step_bytes = Engine::ScoringBytes(config, rows, threads);
  if (options.generates) plan.step_bytes += sampled * config.vocab * kFloat;
  // Rows of hidden states as they are captured and as they are returned.
  if (options.hidden_states != ReturnHiddenStates::kNone) {
    const auto captured = std::max<int64_t>(1, static_cast<int64_t>(options.layers.size()));
    plan.step_bytes += 2 * captured * rows * config.hidden * kFloat;
  }
  plan.step_bytes *= parts.ranks;
  // Rows as they leave and arrive, results as they leave and arrive, once each for a row and expert at the
  // most.
  plan.step_bytes += 4 * parts.exchanging_replicas * rows * config.experts.per_token * config.hidden * kFloat;
  plan.page_bytes = parts.kv_page_bytes + (options.prefix_cache ? PageResultBytes(options.page_size) : 0);
  plan.pages = std::max<int64_t>(0, (plan.limit - plan.Needs(0)) / plan.page_bytes);
  return plan;
}

}  // namespace plumbline
