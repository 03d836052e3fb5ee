#include "plumbline/cli/bench_runs.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "plumbline/base/philox.h"
#include "plumbline/pipelines/engine.h"

namespace plumbline::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kDecodePrompt = 16;  // tokens before a decode
constexpr int32_t kTop = 5;

double Seconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Multiply-adds of one row through the layers' matmuls; biases, norms and the like do not count.
double LayerMultiplyAdds(const DecoderConfig& c) {
  const double attention = static_cast<double>(c.hidden) * (2 * c.QueryWidth() + 2 * c.KvWidth());
  const double mlp = 3.0 * static_cast<double>(c.hidden) * c.intermediate;
  return static_cast<double>(c.layers) * (attention + mlp);
}

// Operations of rows at positions [begin, end) of one sequence, `logits` of them through the head.
double Operations(const DecoderConfig& c, int64_t begin, int64_t end, int64_t logits) {
  const double rows = static_cast<double>(end - begin);
  const double keys = rows * static_cast<double>(begin + end + 1) / 2;  // a row sees itself and all before
  const double attention = 2.0 * keys * static_cast<double>(c.layers * c.QueryWidth());
  const double head = static_cast<double>(logits) * static_cast<double>(c.vocab * c.hidden);
  return 2.0 * (rows * LayerMultiplyAdds(c) + attention + head);
}

Request MakeRequest(const DecoderConfig& config, uint32_t number, int64_t length, int64_t new_tokens) {
  Request request{.id = std::to_string(number), .tokens = {}};
  for (int64_t i = 0; i < length; ++i) {
    const uint32_t word = Philox4x32({0x62656e63, number}, {static_cast<uint32_t>(i), 0, 0, 0})[0];
    request.tokens.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(config.vocab)));
  }
  request.score_from = length;
  request.max_new_tokens = new_tokens;
  return request;
}

// When the run began, when every sequence had its first token, and when it ended.
class Stopwatch : public EngineListener {
 public:
  explicit Stopwatch(size_t sequences) : waiting_(sequences) {}
  bool OnToken(size_t /*request*/, const RequestResult& result) override {
    const bool first = static_cast<int64_t>(result.tokens.size()) == result.prompt_tokens + 1;
    if (first && --waiting_ == 0) first_ = Clock::now();
    last_ = Clock::now();
    return true;
  }
  Status OnResult(size_t /*request*/, RequestResult /*result*/) override { return {}; }

  Clock::time_point first() const { return first_; }
  Clock::time_point last() const { return last_; }

 private:
  size_t waiting_;
  Clock::time_point first_, last_;
};

class Bench {
 public:
  Bench(const Runtime& runtime, const BenchOptions& options) : runtime_(runtime), options_(options) {}

  Status Prefill(int64_t prompt) {
    const Request request = MakeRequest(config(), 0, prompt, 1);
    BenchLine line{.work = fmt::format("prefill {}", prompt), .tokens = prompt, .steps = 1};
    line.operations = Operations(config(), 0, prompt, 1);
    RETURN_IF_ERROR(
        Best(line, {&request, 1}, prompt + 1,
             [](Clock::time_point begin, const Stopwatch& watch) { return Seconds(begin, watch.first()); }));
    line.first_token_seconds = line.seconds;
    lines_.push_back(std::move(line));
    return {};
  }

  Status Decode(int64_t streams) {
    std::vector<Request> requests;
    for (int64_t i = 0; i < streams; ++i) {
      requests.push_back(
          MakeRequest(config(), static_cast<uint32_t>(i), kDecodePrompt, options_.new_tokens + 1));
    }
    BenchLine line{.work = fmt::format("decode {} x {}", streams, options_.new_tokens),
                   .tokens = streams * options_.new_tokens,
                   .steps = options_.new_tokens};
    line.operations =
        static_cast<double>(streams) *
        Operations(config(), kDecodePrompt, kDecodePrompt + options_.new_tokens, options_.new_tokens);
    // Every prompt in the first step, so that all sequences decode side by side from the second on.
    RETURN_IF_ERROR(
        Best(line, requests, streams * kDecodePrompt,
             [](Clock::time_point, const Stopwatch& watch) { return Seconds(watch.first(), watch.last()); }));
    lines_.push_back(std::move(line));
    return {};
  }

  // Log-probs alone, with the best five, and with attention maxima too: in turn, so that what the machine
  // does meanwhile weighs on all alike.
  Status Score(int64_t prompt) {
    Request request = MakeRequest(config(), 0, prompt, 0);
    request.score_from = 1;
    std::vector<Request> requests(3, request);
    requests[1].top_logprobs = requests[2].top_logprobs = kTop;
    requests[2].max_logits = true;
    const std::string names[] = {fmt::format("score {}", prompt),
                                 fmt::format("score {}, top-{}", prompt, kTop),
                                 fmt::format("score {}, top-{}, maxima", prompt, kTop)};
    std::vector<BenchLine> lines;
    for (const std::string& name : names) {
      lines.push_back({.work = name, .tokens = prompt, .steps = 1});
      lines.back().operations = Operations(config(), 0, prompt, prompt);
    }
    for (int64_t run = 0; run < options_.repetitions; ++run) {
      for (size_t i = 0; i < lines.size(); ++i) {
        RETURN_IF_ERROR(
            Once(lines[i], {&requests[i], 1}, prompt,
                 [](Clock::time_point begin, const Stopwatch&) { return Seconds(begin, Clock::now()); }));
      }
    }
    for (BenchLine& line : lines) lines_.push_back(std::move(line));
    return {};
  }

  std::vector<BenchLine>& lines() { return lines_; }

 private:
  const DecoderConfig& config() const { return runtime_.config(); }

  // Sets line.seconds to the least that `measure` says of a run.
  template <typename Measure>
  Status Best(BenchLine& line, std::span<const Request> requests, int64_t chunk_size, Measure&& measure) {
    for (int64_t run = 0; run < options_.repetitions; ++run) {
      RETURN_IF_ERROR(Once(line, requests, chunk_size, measure));
    }
    return {};
  }

  // One run; line.seconds becomes what `measure` says of it where that is less, or the first.
  template <typename Measure>
  Status Once(BenchLine& line, std::span<const Request> requests, int64_t chunk_size, Measure&& measure) {
    ASSIGN_OR_RETURN(Engine engine,
                     Engine::Create(runtime_, {.chunk_size = chunk_size,
                                               .batch_size = static_cast<int64_t>(requests.size()),
                                               .page_size = options_.page_size,
                                               .cancelled = options_.cancelled}));
    Stopwatch watch(requests.size());
    const int64_t moved = runtime_.rank().MovedBytes();
    const Clock::time_point begin = Clock::now();
    RETURN_IF_ERROR(engine.Run(requests, watch));
    line.moved_bytes = runtime_.rank().MovedBytes() - moved;
    const double seconds = measure(begin, watch);
    line.seconds = line.seconds == 0 ? seconds : std::min(line.seconds, seconds);
    return {};
  }

  const Runtime& runtime_;
  const BenchOptions& options_;
  std::vector<BenchLine> lines_;
};

}  // namespace

int64_t StepWeightBytes(const Runtime& runtime) {
  // An untied embedding gives one row a token.
  return runtime.WeightBytes() - (runtime.config().tied_head ? 0 : runtime.EmbeddingBytes());
}

Result<std::vector<BenchLine>> RunBench(const Runtime& runtime, const BenchOptions& options) {
  Bench bench(runtime, options);
  for (int64_t prompt : options.prompts) RETURN_IF_ERROR(bench.Prefill(prompt));
  for (int64_t streams : options.streams) RETURN_IF_ERROR(bench.Decode(streams));
  RETURN_IF_ERROR(bench.Score(*std::ranges::max_element(options.prompts)));
  return std::move(bench.lines());
}

}  // namespace plumbline::cli
