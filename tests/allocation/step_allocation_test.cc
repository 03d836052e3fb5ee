// After warm-up a step's inputs are packed, sent and read without allocating.
#include <gtest/gtest.h>

#include "plumbline/kernels/count_allocations.h"
#include "plumbline/pipelines/contract/contract_test_util.h"
#include "plumbline/pipelines/contract/decoder_message.h"
#include "plumbline/pipelines/contract/replica_padder.h"

namespace plumbline {
namespace {

// The largest step there is: what warms the message up.
std::vector<TextContext> Largest(const BatchProcessorRuntime& runtime, std::span<const int32_t> tokens,
                                 std::span<const uint32_t> pages) {
  const int64_t active = runtime.max_batch_input_tokens / runtime.max_batch_size;
  return std::vector<TextContext>(runtime.max_batch_size, {.tokens = tokens,
                                                           .processed_length = runtime.max_seq_len - active,
                                                           .active_length = active,
                                                           .pages = pages});
}

TEST(StepAllocationTest, AfterWarmUpAStepAllocatesNothing) {
  for (const bool every_field : {false, true}) {
    Deployment deployment({.every_field = every_field});
    ReplicaPadder padder(deployment.runtime, 4);
    std::vector<std::byte> message;
    DecoderInputs<InputTensor> received = Like<InputTensor>(*deployment.processor->declared());
    const auto step = [&](std::span<const ReplicaBatch> batches) {
      const auto inputs = deployment.Prepare(padder.PadReplicas(batches));
      return inputs.has_value() && Pack(**inputs, *deployment.processor->declared(), message).has_value() &&
             Unpack(message, *deployment.processor->declared(), received).has_value();
    };
    const std::vector<int32_t> tokens(200);
    const std::vector<uint32_t> pages = {1, 2, 3, 4};
    const auto largest = Largest(deployment.runtime, tokens, pages);
    const std::vector<TextContext> decoding(
        5, {.tokens = tokens, .processed_length = 1, .active_length = 1, .pages = pages});
    const std::vector<ReplicaBatch> full = {largest, largest};
    const std::vector<ReplicaBatch> uneven[] = {{decoding, {}}, {{}, decoding}};
    ASSERT_TRUE(step(full) && step(uneven[0]) && step(uneven[1]));
    const int64_t buffers = deployment.processor->buffer_allocations();

    std::mt19937 random(7);
    for (int i = 0; i < 300; ++i) {
      const auto batches = deployment.RandomBatches(random);
      const std::span<const ReplicaBatch> chosen = i % 3 == 0 ? std::span(uneven[i % 2]) : std::span(batches);
      const int64_t before = Allocations();
      const bool done = step(chosen);
      const int64_t after = Allocations();
      ASSERT_TRUE(done);
      ASSERT_EQ(after - before, 0) << "step " << i;
    }
    EXPECT_EQ(deployment.processor->buffer_allocations(), buffers);
  }
}

}  // namespace
}  // namespace plumbline
