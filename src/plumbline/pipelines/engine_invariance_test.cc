// A request's answer does not depend on its company, the size of steps, threads, or what was run before.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plumbline/pipelines/engine_test_util.h"

namespace plumbline {
namespace {

// Strangers of every kind and of lengths around the sizes that steps and pages have.
std::vector<Request> Strangers(int64_t count) {
  constexpr int64_t kLengths[] = {33, 1, 64, 7, 65, 16, 2, 100, 31};
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = kLengths[i % std::size(kLengths)];
    Request request{.id = fmt::format("{}", i), .tokens = SomeTokens(length, i)};
    request.top_logprobs = static_cast<int32_t>(i % 4);
    request.max_logits = i % 3 == 0;
    if (i % 4 == 1) request.score_from = length / 2 + 1;
    if (i % 5 == 2) {
      request.max_new_tokens = 4;
      request.sampling = {.temperature = i % 2 == 0 ? 0.0f : 1.0f, .seed = static_cast<uint64_t>(i)};
      request.draft_tokens = static_cast<int32_t>(i % 3);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

void ExpectSameInAnyCompany(const Runtime& runtime, std::span<const int64_t> counts,
                            std::span<const int64_t> chunks, const std::vector<RequestResult>& alone) {
  for (int64_t count : counts) {
    const std::vector<Request> requests = Strangers(count);
    const std::vector<RequestResult> want(alone.begin(), alone.begin() + count);
    for (int64_t chunk : chunks) {
      Engine engine = Engine::Create(runtime, {.chunk_size = chunk, .batch_size = count}).value();
      ExpectSame(RunAll(engine, requests), want,
                 fmt::format("{} strangers, chunk {}, threads {}", count, chunk, runtime.options().threads));
    }
  }
}

constexpr int64_t kCounts[] = {1, 2, 7, 8, 31, 33};
constexpr int64_t kChunks[] = {1, 2, 7, 16, 64, 0};

TEST(EngineInvariance, BatchesAndChunks) {
  for (const char* model : {"llama3", "mistral"}) {
    const auto runtime = LoadTiny(model);
    ExpectSameInAnyCompany(*runtime, kCounts, kChunks, RunCold(*runtime, Strangers(33)));
  }
}

// Many short requests are done long before the first, and their results wait for it.
TEST(EngineInvariance, ResultsThatWaitAreBounded) {
  const auto runtime = LoadTiny("llama3");
  std::vector<Request> requests = Strangers(33);
  requests.front().max_new_tokens = 60;
  const std::vector<RequestResult> alone = RunCold(*runtime, requests);
  int64_t all = 0, largest = 0;
  for (const RequestResult& result : alone) {
    all += result.Bytes();
    largest = std::max(largest, result.Bytes());
  }
  Engine free = Engine::Create(*runtime, {}).value();
  ExpectSame(RunAll(free, requests), alone, "no bound");
  EXPECT_GT(free.stats().result_bytes, 3 * largest);
  for (const int64_t bound : {int64_t{1}, 3 * largest}) {
    Engine engine = Engine::Create(*runtime, {.result_bytes = bound}).value();
    ExpectSame(RunAll(engine, requests), alone, fmt::format("{} of {} bytes of results", bound, all));
    EXPECT_LE(engine.stats().result_bytes, std::max(bound, largest));
  }
}

TEST(EngineInvariance, Threads) {
  constexpr int64_t kFew[] = {8}, kAll[] = {0};
  const std::vector<RequestResult> alone = RunCold(*LoadTiny("llama3"), Strangers(8));
  for (int threads : {2, 3, 5}) ExpectSameInAnyCompany(*LoadTiny("llama3", threads), kFew, kAll, alone);
}

TEST(SlowEngineInvariance, BatchesChunksAndThreads) {
  for (const Compute compute : {Compute::kBf16, Compute::kF32}) {
    const std::vector<RequestResult> alone = RunCold(*LoadTiny("qwen3", 1, compute), Strangers(33));
    ExpectSameInAnyCompany(*LoadTiny("qwen3", 1, compute), kCounts, kChunks, alone);
    constexpr int64_t kFew[] = {7, 33}, kLarge[] = {64, 0};
    for (int threads : {2, 3, 5}) {
      ExpectSameInAnyCompany(*LoadTiny("qwen3", threads, compute), kFew, kLarge, alone);
    }
  }
}

// Requests that begin alike as often as not, of every kind.
std::vector<Request> RandomRequests(std::mt19937& random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  std::vector<Request> requests;
  for (int64_t i = 0, count = 1 + below(9); i < count; ++i) {
    std::vector<int32_t> tokens = SomeTokens(1 + below(220), below(2));
    if (below(2) == 0) tokens.back() = static_cast<int32_t>(below(333));
    const auto size = static_cast<int64_t>(tokens.size());
    Request request{
        .id = fmt::format("{}", i), .tokens = std::move(tokens), .top_logprobs = below(3) == 0 ? 2 : 0};
    request.score_from = below(2) == 0 ? 1 : 1 + below(size + 1);
    request.max_logits = below(8) == 0;
    if (below(3) == 0) {
      request.max_new_tokens = 1 + below(70);
      request.sampling.temperature = below(2) == 0 ? 0.0f : 0.1f;
      request.draft_tokens = static_cast<int32_t>(below(5));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(EngineInvariance, AnyHistoryOfPrefixesAndDrafts) {
  const auto runtime = LoadTiny("smollm2");
  const int64_t page_bytes = runtime->decoder().Kv(64).PageBytes();
  std::mt19937 random(1);
  int64_t reused = 0, accepted = 0;
  for (int trial = 0; trial < 12; ++trial) {
    const EngineOptions options{.chunk_size = 1 + static_cast<int64_t>(random() % 90),
                                .batch_size = 1 + static_cast<int64_t>(random() % 5),
                                .kv_bytes = (5 + static_cast<int64_t>(random() % 12)) * page_bytes,
                                .prefix_cache_bytes = static_cast<int64_t>(random() % 9) * page_bytes};
    Engine engine = Engine::Create(*runtime, options).value();
    for (int round = 0; round < 3; ++round) {
      const std::vector<Request> requests = RandomRequests(random);
      ExpectSame(RunAll(engine, requests), RunCold(*runtime, requests), fmt::format("trial {}", trial));
      reused += engine.stats().rows_reused;
      accepted += engine.stats().drafts_accepted;
    }
  }
  EXPECT_GT(reused, 1000);
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace plumbline
