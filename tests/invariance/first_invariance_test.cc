// One digest over threads, chunk sizes and instruction sets, for scoring and generating, on every tiny
// checkpoint and the default model; and what generation reports is what scoring its output gives.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "../golden/golden_files.h"
#include "plumbline/pipelines/engine_test_util.h"

namespace plumbline {
namespace {

constexpr int kThreads[] = {1, 2, 3, 5};
constexpr int64_t kChunks[] = {1, 7, 64, 0};  // 0: all

// Scored prompts of these lengths, and one greedy and one sampled continuation.
std::vector<Request> MakeRequests(std::initializer_list<int64_t> lengths, int64_t vocab) {
  std::vector<Request> requests;
  for (const int64_t length : lengths) {
    Request request{.id = std::to_string(length), .tokens = {}, .top_logprobs = 3, .max_logits = true};
    for (int64_t i = 0; i < length; ++i) {
      request.tokens.push_back(static_cast<int32_t>((7 * i * i + 13 * length + 5 * i) % vocab));
    }
    requests.push_back(std::move(request));
  }
  for (const float temperature : {0.0f, 0.9f}) {
    Request request = requests.back();
    request.id = fmt::format("temperature {}", temperature);
    request.score_from = std::numeric_limits<int64_t>::max();
    request.max_new_tokens = 6;
    request.sampling = {.temperature = temperature, .seed = 11};
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<RequestResult> RunOnce(const Runtime& runtime, std::span<const Request> requests, int64_t chunk) {
  Engine engine = Engine::Create(runtime, {.chunk_size = chunk}).value();
  return RunAll(engine, requests);
}

void ExpectOneDigest(const Runtime& loaded, const std::vector<Request>& requests) {
  const std::vector<RequestResult> want = RunOnce(loaded, requests, 512);
  for (const Isa isa : SupportedIsas()) {
    for (const int threads : kThreads) {
      const std::unique_ptr<Runtime> runtime = loaded.With(threads, isa).value();
      for (const int64_t chunk : kChunks) {
        ExpectSame(RunOnce(*runtime, requests, chunk), want,
                   fmt::format("{}, threads {}, chunk {}", Name(isa), threads, chunk));
      }
    }
  }
  // Scoring what was generated gives each generated token the log-prob that generating it gave.
  for (const RequestResult& generated : want) {
    if (generated.tokens.size() == static_cast<size_t>(generated.prompt_tokens)) continue;
    const std::vector<Request> score{{.id = "again", .tokens = generated.tokens, .top_logprobs = 3}};
    const RequestResult scored = RunOnce(loaded, score, 512).front();
    const size_t first = scored.logprobs.size() - generated.logprobs.size();
    EXPECT_EQ(std::memcmp(scored.logprobs.data() + first, generated.logprobs.data(),
                          generated.logprobs.size() * sizeof(float)),
              0);
  }
}

class FirstInvariance : public testing::TestWithParam<std::string> {};

TEST_P(FirstInvariance, ThreadsChunksAndInstructionSets) {
  const std::filesystem::path gguf = GoldenFolder() / "models" / GetParam() / "model.gguf";
  const std::string name = std::filesystem::exists(gguf) ? GetParam() + "/model.gguf" : GetParam();
  for (const Compute compute : ComputesOf(name)) {
    SCOPED_TRACE(Name(compute));
    const std::unique_ptr<Runtime> runtime = LoadTiny(name, 2, compute);
    ASSERT_NE(runtime, nullptr);
    ExpectOneDigest(*runtime, MakeRequests({2, 17, 66}, runtime->config().vocab));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FirstInvariance, testing::ValuesIn(TinyModels()),
                         [](const auto& info) { return info.param; });

TEST(FirstInvarianceDefault, ThreadsChunksAndInstructionSets) {
  const RuntimeOptions options{.compute = Compute::kBf16, .threads = 2, .isa = SupportedIsas().back()};
  const auto runtime = Runtime::Load(DefaultModel(), options, nullptr);
  ASSERT_TRUE(runtime.has_value()) << runtime.error().message;
  ExpectOneDigest(**runtime, MakeRequests({3, 12}, (*runtime)->config().vocab));
}

}  // namespace
}  // namespace plumbline
