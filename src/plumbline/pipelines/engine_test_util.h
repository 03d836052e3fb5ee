// Tiny golden models and the engine around them, for tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plumbline/io/checkpoint.h"
#include "plumbline/pipelines/digest.h"
#include "plumbline/pipelines/engine.h"

namespace plumbline {

inline std::unique_ptr<Runtime> LoadTiny(const std::string& name, int threads = 1,
                                         Compute compute = Compute::kBf16) {
  const std::string folder = fmt::format("{}/tests/golden/models/{}", PLUMBLINE_SOURCE_DIR, name);
  const RuntimeOptions options{.compute = compute, .threads = threads, .isa = SupportedIsas().back()};
  auto runtime = Runtime::Load(folder, options, nullptr);
  EXPECT_TRUE(runtime.has_value()) << runtime.error().message;
  return runtime ? std::move(*runtime) : nullptr;
}

// What the tiny checkpoint `name` can be computed in: int8 wants quantised weights.
inline std::vector<Compute> ComputesOf(const std::string& name) {
  const auto checkpoint =
      Checkpoint::Open(fmt::format("{}/tests/golden/models/{}", PLUMBLINE_SOURCE_DIR, name));
  EXPECT_TRUE(checkpoint.has_value());
  std::vector<Compute> computes{Compute::kBf16, Compute::kF32};
  const auto quantized = [](const auto& named) { return IsQuantized(named.second.dtype); };
  if (checkpoint && std::ranges::any_of((*checkpoint)->tensors(), quantized))
    computes.push_back(Compute::kInt8);
  return computes;
}

class Collector : public EngineListener {
 public:
  Status OnResult(size_t request, RequestResult result) override {
    EXPECT_EQ(request, results.size());
    results.push_back(std::move(result));
    return {};
  }
  std::vector<RequestResult> results;
};

inline std::vector<RequestResult> RunAll(Engine& engine, std::span<const Request> requests) {
  Collector collector;
  const Status status = engine.Run(requests, collector);
  EXPECT_TRUE(status.has_value()) << status.error().message;
  EXPECT_EQ(collector.results.size(), requests.size());
  collector.results.resize(requests.size());
  return std::move(collector.results);
}

// Every request alone, on an engine that has seen nothing.
inline std::vector<RequestResult> RunCold(const Runtime& runtime, std::span<const Request> requests) {
  std::vector<RequestResult> results;
  for (const Request& request : requests) {
    Engine engine = Engine::Create(runtime, {.prefix_cache = false}).value();
    results.push_back(RunAll(engine, {&request, 1}).front());
  }
  return results;
}

inline void ExpectSame(const RequestResult& got, const RequestResult& want, const std::string& what) {
  EXPECT_EQ(got.tokens, want.tokens) << what;
  EXPECT_EQ(got.first_logprob, want.first_logprob) << what;
  EXPECT_EQ(got.ranks, want.ranks) << what;
  EXPECT_EQ(got.finish_reason, want.finish_reason) << what;
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size()) << what;
  ASSERT_EQ(got.top.size(), want.top.size()) << what;
  for (size_t i = 0; i < got.top.size(); ++i) EXPECT_EQ(got.top[i].first, want.top[i].first) << what;
  EXPECT_EQ(ResultDigest(got), ResultDigest(want)) << what;
}

inline void ExpectSame(const std::vector<RequestResult>& got, const std::vector<RequestResult>& want,
                       const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) ExpectSame(got[i], want[i], fmt::format("{}, request {}", what, i));
}

// `count` tokens of the vocabulary of 333 that the tiny models share; `salt` says which.
inline std::vector<int32_t> SomeTokens(int64_t count, int64_t salt) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>((7 * i * i + 13 * salt + 5 * i + i * salt) % 333));
  return tokens;
}

}  // namespace plumbline
