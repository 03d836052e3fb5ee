// The attention maxima that scoring reports are those that fused attention gives on the same q and k,
// captured as a layer's attention takes them: bit for bit, for every tiny checkpoint, both compute types and
// every degree of parallelism.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "../golden/golden_files.h"
#include "plumbline/base/float16.h"
#include "plumbline/base/float_env.h"
#include "plumbline/kernels/fused_attention/fused_attention.h"
#include "plumbline/pipelines/engine_test_util.h"
#include "plumbline/pipelines/kv_page_memory.h"

namespace plumbline {
namespace {

constexpr int64_t kPageSize = 64;
constexpr int64_t kLengths[] = {1, 70,
                                131};  // one key alone; beyond one block and, where there is one, the window

std::vector<Request> MakeRequests(int64_t vocab) {
  std::vector<Request> requests;
  for (const int64_t length : kLengths) {
    Request request{.id = std::to_string(length), .tokens = SomeTokens(length, length), .max_logits = true};
    for (int32_t& token : request.tokens) token = static_cast<int32_t>(token % vocab);
    requests.push_back(std::move(request));
  }
  return requests;
}

// q and k of every layer for one prompt, run whole on one rank.
struct Captured {
  std::vector<Tensor> queries, keys;  // float32 [tokens, heads * head_dim] a layer
};

Captured Capture(const Runtime& runtime, const std::vector<int32_t>& prompt) {
  const Decoder& decoder = runtime.decoder();
  const auto tokens = std::ssize(prompt);
  Captured captured;
  std::vector<MatrixView<float>> queries, keys;
  for (int64_t layer = 0; layer < decoder.config.layers; ++layer) {
    captured.queries.push_back(Tensor::Allocate(DType::kF32, {tokens, decoder.config.QueryWidth()}).value());
    captured.keys.push_back(Tensor::Allocate(DType::kF32, {tokens, decoder.config.KvWidth()}).value());
    queries.push_back(captured.queries.back().Matrix());
    keys.push_back(captured.keys.back().Matrix());
  }
  const int64_t pages = (tokens + kPageSize - 1) / kPageSize;
  KvPageMemory memory = KvPageMemory::Reserve(decoder.Kv(kPageSize), pages, 0, 1).value();
  std::vector<void*> page_of;
  for (int64_t page = 0; page < pages; ++page) page_of.push_back(memory.Page(static_cast<uint32_t>(page)));
  const std::vector<int64_t> ids(prompt.begin(), prompt.end());
  std::vector<int32_t> positions(tokens);
  for (int32_t i = 0; i < tokens; ++i) positions[i] = i;
  const int32_t offsets[] = {0, static_cast<int32_t>(tokens)}, lengths[] = {0};
  void* const* const sequences[] = {page_of.data()};
  const std::vector<std::span<const float>> constants = decoder.Constants();
  const DecoderStep step{.tokens = ids,
                         .own = {0, tokens},
                         .positions = positions,
                         .batch = {.row_offsets = offsets, .cache_lengths = lengths, .pages = sequences},
                         .declared = {.constants = constants}};
  DecoderWorkspace workspace =
      DecoderWorkspace::Allocate(decoder.config, decoder.shard, decoder.Workspace(tokens, tokens)).value();
  const ScopedFloatEnv env;
  const Status status = decoder.Forward(runtime.rank().context(), memory.layout(), step,
                                        {.queries = queries, .keys = keys}, workspace);
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return captured;
}

// In the compute type, as the cache keeps it and queries are rounded.
std::vector<std::byte> InComputeType(const Tensor& tensor, Compute compute) {
  std::vector<std::byte> bytes;
  const auto append = [&](auto value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), from, from + sizeof(value));
  };
  for (const float value : tensor.As<const float>())
    compute == Compute::kBf16 ? append(F32ToBf16(value)) : append(value);
  return bytes;
}

// Of one layer: [heads].
std::vector<float> FusedMaxLogit(const Runtime& runtime, const Captured& captured, int64_t layer) {
  const DecoderConfig& config = runtime.config();
  const Compute compute = runtime.decoder().compute;
  const int64_t tokens = captured.queries[layer].Matrix().rows;
  const std::vector<std::byte> q = InComputeType(captured.queries[layer], compute);
  const std::vector<std::byte> k = InComputeType(captured.keys[layer], compute);
  const FusedAttentionShape shape{.dtype = compute == Compute::kBf16 ? DType::kBF16 : DType::kF32,
                                  .batch = 1,
                                  .q_tokens = tokens,
                                  .kv_tokens = tokens,
                                  .heads = config.heads,
                                  .kv_heads = config.kv_heads,
                                  .qk_dim = config.head_dim,
                                  .v_dim = 1};
  const int64_t window = config.window[layer];
  const FusedAttentionOptions options{.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                                      .causal = true,
                                      .left = window > 0 ? window - 1 : -1};
  std::vector<float> v(tokens * config.kv_heads), out(tokens * config.heads), lse(tokens * config.heads);
  std::vector<float> max_logit(config.heads);
  const auto operand = [&](const void* data, int64_t heads, int64_t dim) {
    return FusedOperand<const void>{data, tokens * heads * dim, heads * dim, dim};
  };
  const Status status = FusedAttention(runtime.context(), shape, options,
                                       {.q = operand(q.data(), config.heads, config.head_dim),
                                        .k = operand(k.data(), config.kv_heads, config.head_dim),
                                        .v = operand(v.data(), config.kv_heads, 1)},
                                       {.out = {out.data(), tokens * config.heads, config.heads, 1},
                                        .lse = lse.data(),
                                        .max_logit = max_logit.data()});
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return max_logit;
}

// [layers, heads] a request.
std::vector<std::vector<float>> FusedMaxLogits(const Runtime& runtime, std::span<const Request> requests) {
  std::vector<std::vector<float>> all;
  for (const Request& request : requests) {
    const Captured captured = Capture(runtime, request.tokens);
    std::vector<float>& maxima = all.emplace_back();
    for (int64_t layer = 0; layer < runtime.config().layers; ++layer) {
      const std::vector<float> of_layer = FusedMaxLogit(runtime, captured, layer);
      maxima.insert(maxima.end(), of_layer.begin(), of_layer.end());
    }
  }
  return all;
}

void ExpectReported(const Runtime& runtime, std::span<const Request> requests, int64_t chunk,
                    const std::vector<std::vector<float>>& want) {
  Engine engine = Engine::Create(runtime, {.chunk_size = chunk, .page_size = kPageSize}).value();
  const std::vector<RequestResult> results = RunAll(engine, requests);
  for (size_t i = 0; i < want.size(); ++i) {
    const std::vector<float>& got = results[i].max_logits;
    ASSERT_EQ(got.size(), want[i].size());
    for (size_t n = 0; n < got.size(); ++n) {
      ASSERT_TRUE(std::isfinite(want[i][n]));
      ASSERT_EQ(std::bit_cast<uint32_t>(got[n]), std::bit_cast<uint32_t>(want[i][n]))
          << fmt::format("{} tokens, layer {}, head {}: got {}, want {}", requests[i].tokens.size(),
                         n / runtime.config().heads, n % runtime.config().heads, got[n], want[i][n]);
    }
  }
}

class MaxLogit : public testing::TestWithParam<std::string> {};

TEST_P(MaxLogit, IsThatOfFusedAttentionForEveryDegree) {
  const std::filesystem::path gguf = GoldenFolder() / "models" / GetParam() / "model.gguf";
  const std::string name = std::filesystem::exists(gguf) ? GetParam() + "/model.gguf" : GetParam();
  constexpr ParallelDegrees kDegrees[] = {{.tp = 2},         {.dp = 2},          {.pp = 2},
                                          {.cp = 2},         {.dp = 2, .cp = 2}, {.tp = 2, .pp = 2, .cp = 2},
                                          {.tp = 2, .dp = 2}};
  for (const Compute compute : {Compute::kF32, Compute::kBf16}) {
    SCOPED_TRACE(Name(compute));
    const std::unique_ptr<Runtime> one = LoadTiny(name, 2, compute);
    ASSERT_NE(one, nullptr);
    const std::vector<Request> requests = MakeRequests(one->config().vocab);
    const std::vector<std::vector<float>> want = FusedMaxLogits(*one, requests);
    ExpectReported(*one, requests, 512, want);
    int taken = 0;
    for (const ParallelDegrees& degrees : kDegrees) {
      if (!CheckDegrees(one->config(), degrees)) continue;
      SCOPED_TRACE(fmt::format("tp {} dp {} pp {} cp {}", degrees.tp, degrees.dp, degrees.pp, degrees.cp));
      const auto ranks = one->With(degrees, 1);
      ASSERT_TRUE(ranks.has_value()) << ranks.error().message;
      ExpectReported(**ranks, requests, 33, want);
      ++taken;
    }
    EXPECT_GE(taken, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MaxLogit, testing::ValuesIn(TinyModels()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace plumbline
