#include <gtest/gtest.h>

#include <functional>

#include "plumbline/kernels/logprobs/logprobs.h"

namespace plumbline {
namespace {

// A good batch of two sequences of 3 and 2 tokens over 8 ids, with 3 and 1 outputs, that each case spoils.
struct Case {
  int levels = 2;
  std::vector<float> logits = std::vector<float>(40, 0.0f);
  std::vector<uint32_t> tokens = {0, 1, 2, 3, 4}, sampled = {6, 7};
  std::vector<uint32_t> logit_rows = {0, 3, 5}, token_rows = {0, 3, 5}, outputs = {0, 3, 4};
  std::vector<float> values = std::vector<float>(64);
  std::vector<uint32_t> ids = std::vector<uint32_t>(64);
  LogProbTensors out = {MatrixView<float>(values.data(), 4, 4), MatrixView<uint32_t>(ids.data(), 4, 4)};
  MatrixView<const float> view = {logits.data(), 5, 8};

  Status Check() const {
    return CheckLogProbInputs(out, {view, tokens, sampled, logit_rows, token_rows, outputs}, levels);
  }
};

TEST(CheckLogProbInputs, TakesAGoodBatchAndAnEmptyOne) {
  EXPECT_TRUE(Case().Check());
  Case empty;
  empty.tokens.clear();
  empty.sampled.clear();
  empty.logit_rows = empty.token_rows = empty.outputs = {0};
  empty.out.lp_logits.rows = empty.out.lp_tokens.rows = 0;
  EXPECT_TRUE(empty.Check());
}

TEST(CheckLogProbInputs, EveryFaultHasItsOwnMessage) {
  const std::vector<std::pair<std::function<void(Case&)>, std::string>> cases = {
      {[](Case& c) { c.levels = 9; }, "levels: got 9, want 0 to 8"},
      {[](Case& c) { c.levels = -1; }, "levels: got -1, want 0 to 8"},
      {[](Case& c) { c.out.lp_logits.cols = 3; }, "lp_logits columns: got 3, want 4 (2^levels)"},
      {[](Case& c) { c.out.lp_tokens.cols = 5; }, "lp_tokens columns: got 5, want 4 (2^levels)"},
      {[](Case& c) { c.out.lp_tokens.stride = 2; }, "lp_tokens stride: got 2, want at least its 4 columns"},
      {[](Case& c) { c.out.lp_tokens.rows = 3; }, "lp_tokens rows: got 3, want 4 (rows of lp_logits)"},
      {[](Case& c) { c.out.lp_logits.rows = c.out.lp_tokens.rows = 5; },
       "lp_logits rows: got 5, want 4 (the last of lp_output_offsets)"},
      {[](Case& c) { c.out.lp_logits.rows = c.out.lp_tokens.rows = 3; },
       "lp_output_offsets[2]: got 4, want at most 3 (rows of lp_logits)"},
      {[](Case& c) { c.view.cols = 0; }, "logits columns: got 0, want 1 to 2147483647"},
      {[](Case& c) { c.view.stride = 7; }, "logits stride: got 7, want at least its 8 columns"},
      {[](Case& c) { c.view.rows = 4; }, "logit_row_offsets[2]: got 5, want at most 4 (rows of logits)"},
      {[](Case& c) {
         c.logit_rows = {0, 3};
       },
       "logit_row_offsets length: got 2, want 3 (one more than sampled_tokens)"},
      {[](Case& c) { c.logit_rows = {}; },
       "logit_row_offsets length: got 0, want 3 (one more than sampled_tokens)"},
      {[](Case& c) {
         c.token_rows = {1, 3, 5};
       },
       "token_row_offsets[0]: got 1, want 0"},
      {[](Case& c) {
         c.token_rows = {0, 6, 5};
       },
       "token_row_offsets[2]: got 5, want at least 6 (the offset before it)"},
      {[](Case& c) { c.tokens.pop_back(); },
       "token_row_offsets[2]: got 5, want at most 4 (length of tokens)"},
      {[](Case& c) {
         c.outputs = {0, 4, 4};
       },
       "logit_row_offsets of sequence 0: got 3 rows, want at least 4 (its outputs)"},
      {[](Case& c) {
         c.logit_rows = {0, 5, 5};
       },
       "logit_row_offsets of sequence 1: got 0 rows, want at least 1 (its outputs)"},
      {[](Case& c) {
         c.token_rows = {0, 5, 5};
       },
       "token_row_offsets of sequence 1: got 0 tokens, want at least 1 (its outputs)"},
      {[](Case& c) { c.tokens[3] = 8; }, "tokens[3]: got token id 8, want less than 8 (columns of logits)"},
      {[](Case& c) { c.sampled[1] = 4294966297u; },
       "sampled_tokens[1]: got token id 4294966297, want less than 8 (columns of logits)"}};
  for (const auto& [spoil, message] : cases) {
    Case c;
    spoil(c);
    const Status status = c.Check();
    ASSERT_FALSE(status) << message;
    EXPECT_EQ(status.error().message, message);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidInput);
  }
}

TEST(CheckLogProbInputs, NothingIsComputedWhereSomethingIsWrong) {
  Case c;
  c.sampled[1] = 8;
  ThreadPool pool(1);
  const LogProbInputs in = {c.view, c.tokens, c.sampled, c.logit_rows, c.token_rows, c.outputs};
  EXPECT_FALSE(ComputeLogProbabilities({pool, Isa::kAvx2}, 2, c.out, in));
  EXPECT_EQ(c.values, std::vector<float>(64));
}

}  // namespace
}  // namespace plumbline
