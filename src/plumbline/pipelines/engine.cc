#include "plumbline/pipelines/engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "plumbline/base/memory.h"
#include "plumbline/kernels/logprobs/logprobs.h"
#include "plumbline/pipelines/prompt_logprobs.h"

namespace plumbline {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

// What activations of a step may take, and the rows that are worth a step even where they take more.
constexpr int64_t kStepBytes = int64_t{24} << 20;
constexpr int64_t kMinStepRows = 64;

int64_t CountRows(std::span<const StepEntry> entries) {
  int64_t rows = 0;
  for (const StepEntry& entry : entries) rows += entry.rows;
  return rows;
}

// Entries of one kind are consecutive.
std::span<const StepEntry> OfKind(std::span<const StepEntry> entries, RowKind kind) {
  size_t begin = 0;
  while (begin < entries.size() && entries[begin].kind != kind) ++begin;
  size_t end = begin;
  while (end < entries.size() && entries[end].kind == kind) ++end;
  return entries.subspan(begin, end - begin);
}

}  // namespace

bool EngineListener::OnToken(size_t /*request*/, const RequestResult& /*result*/) { return true; }
Status EngineListener::OnHiddenStates(size_t /*request*/, int64_t /*first_row*/,
                                      std::span<const MatrixView<const float>> /*states*/) {
  return {};
}
void EngineListener::OnProgress(int64_t /*rows_done*/, int64_t /*rows_total*/) {}

Engine::Engine(const Runtime& runtime, EngineOptions options)
    : runtime_(&runtime),
      options_(std::move(options)),
      context_(runtime.context()),
      pool_(runtime.decoder().Kv(options_.page_size),
            options_.kv_bytes > 0 ? options_.kv_bytes : AvailableMemoryBytes()) {}

Result<Engine> Engine::Create(const Runtime& runtime, EngineOptions options) {
  if (options.chunk_size < 0) return InvalidInput("--chunk-size: got {}, want 0 or more", options.chunk_size);
  if (options.batch_size < 1) return InvalidInput("--batch-size: got {}, want 1 or more", options.batch_size);
  if (options.page_size < kKeyBlock || options.page_size % kKeyBlock != 0 || options.page_size > (1 << 20)) {
    return InvalidInput("--kv-page-size: got {}, want a multiple of {}", options.page_size, kKeyBlock);
  }
  for (int32_t layer : options.layers) {
    if (layer < 0 || layer >= runtime.config().layers) {
      return InvalidInput("--layers: got {}, want 0 to {}", layer, runtime.config().layers - 1);
    }
  }
  return Engine(runtime, std::move(options));
}

int64_t Engine::ScoringBytes(const DecoderConfig& config, int64_t rows, int threads) {
  const int64_t widest = std::max({config.hidden, config.intermediate, config.QueryWidth()});
  const int64_t packed = rows * widest * static_cast<int64_t>(sizeof(float));
  // logits_postprocess: the selected rows, the same packed, and one tile of logits a thread.
  const int64_t selected = 2 * rows * config.hidden * static_cast<int64_t>(sizeof(float));
  const int64_t tiles = threads * kStreamRows * kVocabTile * static_cast<int64_t>(sizeof(float));
  return DecoderWorkspace::Bytes(config, rows) + packed + selected + tiles;
}

int64_t Engine::StepRows(const DecoderConfig& config, const EngineOptions& options, int64_t longest,
                         int threads) {
  const int64_t wanted = options.chunk_size > 0 ? options.chunk_size : longest;
  const int64_t fixed = ScoringBytes(config, options.batch_size, threads);
  const int64_t a_row = ScoringBytes(config, options.batch_size + 1, threads) - fixed;
  return std::min(wanted, std::max(kMinStepRows, (kStepBytes - fixed) / a_row));
}

Status Engine::Check(std::span<const Request> requests) const {
  for (const Request& request : requests) {
    RETURN_IF_ERROR(CheckRequest(request, runtime_->config()));
    const int64_t pages =
        pool_.PagesFor(static_cast<int64_t>(request.tokens.size()) + request.max_new_tokens);
    if (pages > pool_.max_pages()) {
      return InvalidInput(
          "KV cache: got a request that needs {} bytes, want at most the {} bytes available (request {})",
          pages * pool_.page_bytes(), pool_.max_pages() * pool_.page_bytes(), request.id);
    }
  }
  return {};
}

Status Engine::Run(std::span<const Request> requests, EngineListener& listener) {
  RETURN_IF_ERROR(Check(requests));
  int64_t longest = 1, total = 0, done = 0;
  for (const Request& request : requests) {
    longest = std::max<int64_t>(longest, static_cast<int64_t>(request.tokens.size()));
    total += static_cast<int64_t>(request.tokens.size()) + request.max_new_tokens;
  }
  row_budget_ = StepRows(runtime_->config(), options_, longest, runtime_->options().threads);
  const int64_t max_rows = std::min(row_budget_, total) + options_.batch_size;
  ASSIGN_OR_RETURN(workspace_, DecoderWorkspace::Allocate(runtime_->config(), max_rows));
  captured_.clear();
  for (size_t i = 0; i < options_.layers.size(); ++i) {
    ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(DType::kF32, {max_rows, runtime_->config().hidden}));
    captured_.push_back(std::move(tensor));
  }
  next_request_ = next_result_ = 0;
  while (next_result_ < requests.size()) {
    if (options_.cancelled != nullptr && options_.cancelled->load(std::memory_order_relaxed)) {
      return std::unexpected(Error{ErrorCode::kCancelled, fmt::format("interrupted: {} of {} requests done",
                                                                      next_result_, requests.size())});
    }
    RETURN_IF_ERROR(Admit(requests));
    RETURN_IF_ERROR(Step(listener));
    done += inputs_.rows();
    listener.OnProgress(done, total);
    Retire();
    while (done_.contains(next_result_)) {
      RETURN_IF_ERROR(listener.OnResult(next_result_, std::move(done_.extract(next_result_).mapped())));
      ++next_result_;
    }
  }
  return {};
}

Status Engine::Admit(std::span<const Request> requests) {
  while (next_request_ < requests.size() && static_cast<int64_t>(active_.size()) < options_.batch_size) {
    const Request& request = requests[next_request_];
    Sequence sequence;
    const int64_t length = static_cast<int64_t>(request.tokens.size()) + request.max_new_tokens;
    ASSIGN_OR_RETURN(const bool fits, pool_.Acquire(pool_.PagesFor(length), sequence.pages));
    if (!fits) break;
    sequence.index = next_request_++;
    sequence.request = &request;
    RequestResult& result = sequence.result;
    result.tokens.reserve(length);
    result.tokens = request.tokens;
    result.prompt_tokens = static_cast<int64_t>(request.tokens.size());
    result.first_logprob = std::min(request.score_from, result.prompt_tokens);
    result.top_k = static_cast<int32_t>(std::min<int64_t>(request.top_logprobs, runtime_->config().vocab));
    if (request.max_logits)
      result.max_logits.assign(runtime_->config().layers * runtime_->config().heads, kNegInf);
    active_.push_back(std::move(sequence));
  }
  return {};
}

Status Engine::Step(EngineListener& listener) {
  std::vector<Sequence*> sequences;
  for (Sequence& sequence : active_) sequences.push_back(&sequence);
  const std::vector<StepEntry> entries = PlanStep(sequences, row_budget_);
  inputs_.Build(entries);

  DecoderObservers observers;
  const bool max_logits =
      std::ranges::any_of(entries, [](const StepEntry& e) { return e.sequence->request->max_logits; });
  if (max_logits) {
    max_logits_.assign(runtime_->config().layers * entries.size() * runtime_->config().heads, kNegInf);
    observers.max_logits = max_logits_.data();
  }
  captured_views_.clear();
  for (Tensor& tensor : captured_) captured_views_.push_back(tensor.Matrix().Rows(0, inputs_.rows()));
  observers.layers = options_.layers;
  observers.hidden = captured_views_;
  RETURN_IF_ERROR(
      runtime_->decoder().Forward(context_, pool_.layout(), inputs_.Step(), observers, workspace_));
  if (max_logits) TakeMaxLogits(entries);

  const auto scored = OfKind(entries, RowKind::kScore);
  const auto sampled = OfKind(entries, RowKind::kSample);
  const auto silent = OfKind(entries, RowKind::kSilent);
  const int64_t scored_rows = CountRows(scored), sampled_rows = CountRows(sampled);
  if (!scored.empty()) RETURN_IF_ERROR(FinishScored(scored, 0, listener));
  if (!sampled.empty()) RETURN_IF_ERROR(FinishSampled(sampled, scored_rows, listener));
  if (!silent.empty()) RETURN_IF_ERROR(FinishSilent(silent, scored_rows + sampled_rows, listener));
  for (const StepEntry& entry : entries) {
    Sequence& sequence = *entry.sequence;
    sequence.processed += entry.rows;
    if (!sequence.generates() && sequence.processed == sequence.prompt_size()) sequence.finished = true;
  }
  return {};
}

void Engine::TakeMaxLogits(std::span<const StepEntry> entries) {
  const int64_t layers = runtime_->config().layers, heads = runtime_->config().heads;
  const int64_t batch = static_cast<int64_t>(entries.size());
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<float>& result = entries[b].sequence->result.max_logits;
    if (result.empty()) continue;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const float* step = max_logits_.data() + (layer * batch + b) * heads;
      float* all = result.data() + layer * heads;
      for (int64_t h = 0; h < heads; ++h)
        all[h] = (step[h] > all[h] || std::isnan(step[h])) ? step[h] : all[h];
    }
  }
}

LogitsPostprocessInputs Engine::PostprocessInputs(std::span<const StepEntry> entries, int64_t first_row) {
  local_offsets_.assign(1, 0);
  for (const StepEntry& entry : entries) {
    local_offsets_.push_back(local_offsets_.back() + static_cast<uint32_t>(entry.rows));
  }
  const int64_t rows = local_offsets_.back();
  captured_rows_.clear();
  for (const MatrixView<float>& view : captured_views_) captured_rows_.push_back(view.Rows(first_row, rows));
  return {.h = workspace_.hidden.Rows(first_row, rows),
          .input_row_offsets = local_offsets_,
          .lm_head = &runtime_->decoder().head,
          .norm = &runtime_->decoder().final_norm,
          .return_hidden_states = options_.hidden_states,
          .capture_hidden_states = captured_rows_};
}

Status Engine::FinishScored(std::span<const StepEntry> entries, int64_t first_row, EngineListener& listener) {
  PromptLogProbs sink(context_, entries);
  LogitsPostprocessInputs in = PostprocessInputs(entries, first_row);
  in.return_logits = ReturnLogits::kAll;
  in.sink = &sink;
  ASSIGN_OR_RETURN(const LogitsPostprocessOutputs out, logits_postprocess(context_, in));
  for (const StepEntry& entry : entries) {
    for (float logprob : entry.sequence->result.logprobs) {
      if (std::isnan(logprob)) {
        return Failed("log-prob: got NaN, want a number (request {})", entry.sequence->request->id);
      }
    }
  }
  return EmitHiddenStates(entries, out, listener);
}

Status Engine::FinishSampled(std::span<const StepEntry> entries, int64_t first_row,
                             EngineListener& listener) {
  LogitsPostprocessInputs in = PostprocessInputs(entries, first_row);
  in.return_logits = ReturnLogits::kLastToken;
  ASSIGN_OR_RETURN(const LogitsPostprocessOutputs out, logits_postprocess(context_, in));
  const MatrixView<const float> logits = out.last_logits->Matrix();
  std::vector<uint32_t> sampled(entries.size()), tokens(entries.size(), 0);
  std::vector<int32_t> top_n(entries.size());
  const std::vector<uint8_t> echo(entries.size(), 0);
  for (size_t b = 0; b < entries.size(); ++b) {
    const Sequence& sequence = *entries[b].sequence;
    ASSIGN_OR_RETURN(const int32_t token,
                     SampleToken({logits.Row(b), static_cast<size_t>(logits.cols)}, sequence.result.tokens,
                                 sequence.processed + 1, sequence.request->sampling, sampling_));
    sampled[b] = static_cast<uint32_t>(token);
    tokens[b] = static_cast<uint32_t>(sequence.result.tokens.back());
    top_n[b] = std::max(1, sequence.result.top_k);
  }
  ASSIGN_OR_RETURN(const auto logprobs,
                   compute_log_probabilities_ragged(context_, {.input_row_offsets = local_offsets_,
                                                               .logits = std::nullopt,
                                                               .next_token_logits = logits,
                                                               .tokens = tokens,
                                                               .sampled_tokens = sampled,
                                                               .batch_top_n = top_n,
                                                               .batch_echo = echo}));
  RETURN_IF_ERROR(EmitHiddenStates(entries, out, listener));
  for (size_t b = 0; b < entries.size(); ++b) {
    RETURN_IF_ERROR(
        TakeToken(*entries[b].sequence, static_cast<int32_t>(sampled[b]), *logprobs[b], listener));
  }
  return {};
}

Status Engine::FinishSilent(std::span<const StepEntry> entries, int64_t first_row, EngineListener& listener) {
  if (options_.hidden_states == ReturnHiddenStates::kNone) return {};
  LogitsPostprocessInputs in = PostprocessInputs(entries, first_row);
  in.return_logits = ReturnLogits::kLastToken;
  ASSIGN_OR_RETURN(const LogitsPostprocessOutputs out, logits_postprocess(context_, in));
  return EmitHiddenStates(entries, out, listener);
}

Status Engine::EmitHiddenStates(std::span<const StepEntry> entries, const LogitsPostprocessOutputs& out,
                                EngineListener& listener) {
  if (out.hidden_states.empty()) return {};
  const bool last_only = options_.hidden_states == ReturnHiddenStates::kLast ||
                         options_.hidden_states == ReturnHiddenStates::kLastPerDevice;
  std::vector<MatrixView<const float>> states;
  for (size_t b = 0; b < entries.size(); ++b) {
    const int64_t begin = last_only ? static_cast<int64_t>(b) : local_offsets_[b];
    const int64_t rows = last_only ? 1 : entries[b].rows;
    const int64_t first = entries[b].sequence->processed + entries[b].rows - rows;
    states.clear();
    for (const Tensor& tensor : out.hidden_states) states.push_back(tensor.Matrix().Rows(begin, rows));
    RETURN_IF_ERROR(listener.OnHiddenStates(entries[b].sequence->index, first, states));
  }
  return {};
}

Status Engine::TakeToken(Sequence& sequence, int32_t token, const LogProbabilities& logprobs,
                         EngineListener& listener) {
  RequestResult& result = sequence.result;
  const float logprob = logprobs.token_log_probabilities.front();
  if (std::isnan(logprob))
    return Failed("log-prob: got NaN, want a number (request {})", sequence.request->id);
  const auto& top = logprobs.top_log_probabilities.front();
  result.tokens.push_back(token);
  result.logprobs.push_back(logprob);
  for (int32_t i = 0; i < result.top_k; ++i) {
    result.top.emplace_back(static_cast<int32_t>(top[i].first), top[i].second);
  }
  const int64_t generated = static_cast<int64_t>(result.tokens.size()) - result.prompt_tokens;
  const bool stop_id =
      std::ranges::find(sequence.request->stop_ids, token) != sequence.request->stop_ids.end();
  const bool go_on = listener.OnToken(sequence.index, result);
  if (stop_id || !go_on) result.finish_reason = FinishReason::kStop;
  sequence.finished = stop_id || !go_on || generated == sequence.request->max_new_tokens;
  return {};
}

void Engine::Retire() {
  for (Sequence& sequence : active_) {
    if (!sequence.finished) continue;
    pool_.Release(sequence.pages);
    done_.emplace(sequence.index, std::move(sequence.result));
  }
  std::erase_if(active_, [](const Sequence& sequence) { return sequence.finished; });
}

}  // namespace plumbline
