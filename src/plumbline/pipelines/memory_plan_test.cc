#include "plumbline/pipelines/memory_plan.h"

#include <gtest/gtest.h>

#include "plumbline/pipelines/engine_test_util.h"

namespace plumbline {
namespace {

class MemoryPlanTest : public testing::Test {
 protected:
  MemoryPlan Plan(const EngineOptions& options) const {
    return PlanMemory(runtime_->config(), {.weight_bytes = 1 << 20, .kv_page_bytes = 1000, .threads = 2},
                      options);
  }
  const std::unique_ptr<Runtime> runtime_ = LoadTiny("smollm2");
};

TEST_F(MemoryPlanTest, WholePagesOfWhatIsLeft) {
  EngineOptions options{.generates = false, .prefix_cache = false};
  const int64_t least = Plan(options).Needs(0);
  EXPECT_EQ(least, kBesideBytes + (1 << 20) + Plan(options).step_bytes);
  for (const auto& [more, pages] : {std::pair{-1, 0}, {0, 0}, {999, 0}, {1000, 1}, {7999, 7}, {8000, 8}}) {
    options.memory_limit = least + more;
    EXPECT_EQ(Plan(options).pages, pages) << more;
  }
}

// Whatever a step may hold is counted: logits of sampled rows, guesses, captured rows, every rank's,
// log-probs kept.
TEST_F(MemoryPlanTest, EveryOptionThatHoldsMoreNeedsMore) {
  const EngineOptions plain{.generates = false, .draft_rows = 0, .prefix_cache = false};
  const MemoryPlan base = Plan(plain);
  EngineOptions options = plain;
  options.generates = true;
  const int64_t generating = Plan(options).step_bytes;
  EXPECT_EQ(generating - base.step_bytes, options.batch_size * runtime_->config().vocab * 4);
  options.draft_rows = 8;
  EXPECT_GT(Plan(options).step_bytes, generating);
  options = plain;
  options.hidden_states = ReturnHiddenStates::kSelectedLayers;
  options.layers = {0};
  const int64_t one_layer = Plan(options).step_bytes - base.step_bytes;
  options.layers = {0, 1, 2};
  EXPECT_GT(one_layer, 0);
  EXPECT_EQ(Plan(options).step_bytes - base.step_bytes, 3 * one_layer);
  options = plain;
  options.prefix_cache = true;
  EXPECT_GT(Plan(options).page_bytes, base.page_bytes);
  EXPECT_EQ(
      PlanMemory(runtime_->config(), {.weight_bytes = 1, .kv_page_bytes = 1, .ranks = 3, .threads = 2}, plain)
          .step_bytes,
      3 * base.step_bytes);
}

}  // namespace
}  // namespace plumbline
