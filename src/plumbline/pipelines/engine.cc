#include "plumbline/pipelines/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "plumbline/base/memory.h"
#include "plumbline/pipelines/draft.h"

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

MemoryPlan PlanOf(const Runtime& runtime, const EngineOptions& options) {
  return PlanMemory(runtime.config(), runtime.decoder().Kv(options.page_size),
                    runtime.decoder().WeightBytes(), runtime.options().threads, options);
}

std::string Parts(const MemoryPlan& plan, int64_t pages) {
  return fmt::format("program {}, weights {}, step {}, {} KV pages of {}", kBesideBytes, plan.weight_bytes,
                     plan.step_bytes, pages, plan.page_bytes);
}

}  // namespace

bool EngineListener::OnToken(size_t /*request*/, const RequestResult& /*result*/) { return true; }
Status EngineListener::OnHiddenStates(size_t /*request*/, int64_t /*first_row*/,
                                      std::span<const MatrixView<const float>> /*states*/) {
  return {};
}
void EngineListener::OnProgress(int64_t /*rows_done*/, int64_t /*rows_total*/) {}

Engine::Engine(const Runtime& runtime, EngineOptions options, int64_t kv_bytes)
    : runtime_(&runtime),
      options_(std::move(options)),
      context_(runtime.context()),
      pool_(runtime.decoder().Kv(options_.page_size), kv_bytes),
      prefixes_(pool_, options_.prefix_cache, options_.prefix_cache_bytes) {}

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
  if (options.draft_rows < 0) return InvalidInput("draft rows: got {}, want 0 or more", options.draft_rows);
  int64_t kv_bytes = options.kv_bytes > 0 ? options.kv_bytes : AvailableMemoryBytes();
  if (options.memory_limit > 0) {
    const MemoryPlan plan = PlanOf(runtime, options);
    if (plan.pages == 0) {
      return InvalidInput("--memory-limit: got {} bytes, want at least {} ({})", plan.limit, plan.Needs(1),
                          Parts(plan, 1));
    }
    kv_bytes = plan.pages * runtime.decoder().Kv(options.page_size).PageBytes();
  }
  return Engine(runtime, std::move(options), kv_bytes);
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
                         int threads, int64_t draft_rows) {
  const int64_t wanted = options.chunk_size > 0 ? options.chunk_size : longest;
  const int64_t sampled = options.batch_size + draft_rows;
  const int64_t fixed = ScoringBytes(config, sampled, threads);
  const int64_t a_row = ScoringBytes(config, sampled + 1, threads) - fixed;
  return std::min(wanted, std::max(kMinStepRows, (kStepBytes - fixed) / a_row));
}

Status Engine::Check(std::span<const Request> requests) const {
  for (const Request& request : requests) {
    RETURN_IF_ERROR(CheckRequest(request, runtime_->config()));
    const int64_t pages =
        pool_.PagesFor(static_cast<int64_t>(request.tokens.size()) + request.max_new_tokens);
    if (request.max_new_tokens > 0 && !options_.generates) {
      return InvalidInput("new tokens: got {}, want none of an engine that only scores (request {})",
                          request.max_new_tokens, request.id);
    }
    if (pages <= pool_.max_pages()) continue;
    if (options_.memory_limit > 0) {
      const MemoryPlan plan = PlanOf(*runtime_, options_);
      return InvalidInput("--memory-limit: got {} bytes, want at least {} ({}) (request {})", plan.limit,
                          plan.Needs(pages), Parts(plan, pages), request.id);
    }
    return InvalidInput(
        "KV cache: got a request that needs {} bytes, want at most the {} bytes available (request {})",
        pages * pool_.page_bytes(), pool_.max_pages() * pool_.page_bytes(), request.id);
  }
  return {};
}

// Memory for the largest step that the requests can make.
Status Engine::Prepare(std::span<const Request> requests) {
  int64_t longest = 1, total = 0, drafts = 0, generating = 0;
  for (const Request& request : requests) {
    longest = std::max<int64_t>(longest, static_cast<int64_t>(request.tokens.size()));
    total += static_cast<int64_t>(request.tokens.size()) + request.max_new_tokens;
    drafts = std::max<int64_t>(drafts, request.draft_tokens);
    if (request.max_new_tokens > 0) ++generating;
  }
  const int64_t in_flight = std::min<int64_t>(options_.batch_size, static_cast<int64_t>(requests.size()));
  generating = std::min(generating, in_flight);
  draft_limit_ = generating == 0 ? 0 : std::min(drafts, options_.draft_rows / generating);
  const int64_t draft_rows = generating * draft_limit_;
  row_budget_ = StepRows(runtime_->config(), options_, longest, runtime_->options().threads, draft_rows);
  const int64_t max_rows = std::min(row_budget_, total) + in_flight + draft_rows;
  ASSIGN_OR_RETURN(workspace_, DecoderWorkspace::Allocate(runtime_->config(), max_rows));
  captured_.clear();
  for (size_t i = 0; i < options_.layers.size(); ++i) {
    ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(DType::kF32, {max_rows, runtime_->config().hidden}));
    captured_.push_back(std::move(tensor));
  }
  // What an earlier run that failed left behind.
  for (Sequence& sequence : active_) prefixes_.Retire(pool_, sequence);
  active_.clear();
  done_.clear();
  next_request_ = next_result_ = 0;
  stats_ = {};
  return {};
}

Status Engine::Run(std::span<const Request> requests, EngineListener& listener) {
  RETURN_IF_ERROR(Check(requests));
  RETURN_IF_ERROR(Prepare(requests));
  int64_t total = 0;
  for (const Request& request : requests)
    total += static_cast<int64_t>(request.tokens.size()) + request.max_new_tokens;
  while (next_result_ < requests.size()) {
    if (options_.cancelled != nullptr && options_.cancelled->load(std::memory_order_relaxed)) {
      return std::unexpected(Error{ErrorCode::kCancelled, fmt::format("interrupted: {} of {} requests done",
                                                                      next_result_, requests.size())});
    }
    RETURN_IF_ERROR(Admit(requests));
    RETURN_IF_ERROR(Step(listener));
    listener.OnProgress(stats_.rows_run + stats_.rows_reused - stats_.drafts_rejected, total);
    Retire();
    while (done_.contains(next_result_)) {
      RETURN_IF_ERROR(listener.OnResult(next_result_, std::move(done_.extract(next_result_).mapped())));
      ++next_result_;
    }
  }
  return {};
}

Status Engine::Admit(std::span<const Request> requests) {
  const DecoderConfig& config = runtime_->config();
  while (next_request_ < requests.size() && static_cast<int64_t>(active_.size()) < options_.batch_size) {
    const Request& request = requests[next_request_];
    const int64_t length = static_cast<int64_t>(request.tokens.size()) + request.max_new_tokens;
    Sequence sequence;
    sequence.index = next_request_;
    sequence.request = &request;
    sequence.reads_prefix = !request.max_logits && options_.hidden_states == ReturnHiddenStates::kNone;
    RequestResult& result = sequence.result;
    result.tokens.reserve(length);
    result.tokens = request.tokens;
    result.prompt_tokens = static_cast<int64_t>(request.tokens.size());
    result.first_logprob = std::min(request.score_from, result.prompt_tokens);
    result.top_k = static_cast<int32_t>(std::min<int64_t>(request.top_logprobs, config.vocab));
    if (request.max_logits) result.max_logits.assign(config.layers * config.heads, kNegInf);
    ASSIGN_OR_RETURN(const bool fits, prefixes_.Admit(pool_, sequence, length, active_.empty()));
    if (!fits) break;
    active_.push_back(std::move(sequence));
    ++next_request_;
  }
  return {};
}

// The sequences that have rows to run: one whose prefix an earlier one is about to run waits for it.
void Engine::ChooseSequences() {
  runnable_.clear();
  for (auto sequence = active_.begin(); sequence != active_.end(); ++sequence) {
    if (!sequence->started) {
      if (std::any_of(active_.begin(), sequence,
                      [&](const Sequence& earlier) { return prefixes_.Awaits(*sequence, earlier); })) {
        continue;
      }
      stats_.rows_reused += prefixes_.Start(pool_, *sequence);
    }
    Draft(*sequence);
    runnable_.push_back(&*sequence);
  }
}

void Engine::Draft(Sequence& sequence) const {
  sequence.drafts.clear();
  const Request& request = *sequence.request;
  const bool observed = request.max_logits || options_.hidden_states != ReturnHiddenStates::kNone;
  if (request.draft_tokens == 0 || observed || sequence.NextKind() != RowKind::kSample) return;
  // The row that accepts the last draft gives one token more.
  const int64_t wanted =
      request.max_new_tokens - (static_cast<int64_t>(sequence.result.tokens.size()) - sequence.prompt_size());
  ProposeDrafts(sequence.result.tokens, std::min({int64_t{request.draft_tokens}, draft_limit_, wanted - 1}),
                sequence.drafts);
}

Status Engine::Forward() {
  DecoderObservers observers;
  const bool max_logits =
      std::ranges::any_of(entries_, [](const StepEntry& e) { return e.sequence->request->max_logits; });
  if (max_logits) {
    max_logits_.assign(runtime_->config().layers * entries_.size() * runtime_->config().heads, kNegInf);
    observers.max_logits = max_logits_.data();
  }
  captured_views_.clear();
  for (Tensor& tensor : captured_) captured_views_.push_back(tensor.Matrix().Rows(0, inputs_.rows()));
  observers.layers = options_.layers;
  observers.hidden = captured_views_;
  RETURN_IF_ERROR(
      runtime_->decoder().Forward(context_, pool_.layout(), inputs_.Step(), observers, workspace_));
  if (max_logits) TakeMaxLogits(entries_);
  return {};
}

Status Engine::Step(EngineListener& listener) {
  ChooseSequences();
  PlanStep(runnable_, row_budget_, entries_);
  inputs_.Build(entries_);
  RETURN_IF_ERROR(Forward());
  stats_.rows_run += inputs_.rows();

  const std::span<const StepEntry> entries = entries_;
  const auto scored = OfKind(entries, RowKind::kScore);
  const auto sampled = OfKind(entries, RowKind::kSample);
  const auto silent = OfKind(entries, RowKind::kSilent);
  const int64_t scored_rows = CountRows(scored), sampled_rows = CountRows(sampled);
  if (!scored.empty()) RETURN_IF_ERROR(FinishScored(scored, 0, listener));
  if (!sampled.empty()) RETURN_IF_ERROR(FinishSampled(sampled, scored_rows, listener));
  if (!silent.empty()) RETURN_IF_ERROR(FinishSilent(silent, scored_rows + sampled_rows, listener));
  for (const StepEntry& entry : entries) {
    Sequence& sequence = *entry.sequence;
    // Of a generating sequence all but the last token are in the cache: rows of rejected drafts do not count.
    sequence.processed = entry.kind == RowKind::kSample
                             ? static_cast<int64_t>(sequence.result.tokens.size()) - 1
                             : sequence.processed + entry.rows;
    if (!sequence.generates() && sequence.processed == sequence.prompt_size()) sequence.finished = true;
    prefixes_.Publish(pool_, sequence);
  }
  for (Sequence& sequence : active_) {
    if (!sequence.started) prefixes_.Extend(pool_, sequence);
  }
  return {};
}

void Engine::Retire() {
  for (Sequence& sequence : active_) {
    if (!sequence.finished) continue;
    prefixes_.Retire(pool_, sequence);
    done_.emplace(sequence.index, std::move(sequence.result));
  }
  std::erase_if(active_, [](const Sequence& sequence) { return sequence.finished; });
}

}  // namespace plumbline
