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

KvPageGeometry Geometry(const Runtime& runtime, int64_t page_size) {
  return {.page_size = page_size,
          .page_bytes = runtime.KvPageBytes(page_size),
          .owners = runtime.options().degrees.cp};
}

MemoryPlan PlanOf(const Runtime& runtime, const EngineOptions& options) {
  const ParallelDegrees& degrees = runtime.options().degrees;
  return PlanMemory(runtime.config(),
                    {.weight_bytes = runtime.WeightBytes(),
                     .kv_page_bytes = runtime.KvPageBytes(options.page_size),
                     .ranks = degrees.Ranks(),
                     .threads = runtime.options().threads,
                     .exchanging_replicas = degrees.ep > 1 ? degrees.dp : 0},
                    options);
}

std::string DescribeParts(const MemoryPlan& plan, int64_t pages) {
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
      driver_(std::make_unique<StepDriver>(
          runtime, ExecutorOptions{.page_size = options_.page_size, .hidden_states = options_.hidden_states},
          options_.layers)) {
  const int replicas = runtime.options().degrees.dp;
  // State of requests is not kept with the pages of a prefix.
  if (!runtime.config().declares.state.empty()) options_.prefix_cache = false;
  hidden_shape_ = {.mode = options_.hidden_states, .layers = options_.layers, .replicas = replicas};
  const int64_t bytes = kv_bytes / replicas;
  for (int r = 0; r < replicas; ++r) {
    KvPagePool pool(Geometry(runtime, options_.page_size), bytes);
    PrefixReuse prefixes(pool, options_.prefix_cache, options_.prefix_cache_bytes / replicas);
    replicas_.push_back({.pool = std::move(pool), .prefixes = std::move(prefixes)});
  }
}

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
                          DescribeParts(plan, 1));
    }
    kv_bytes = plan.pages * runtime.KvPageBytes(options.page_size);
  }
  return Engine(runtime, std::move(options), kv_bytes);
}

int64_t Engine::ScoringBytes(const DecoderConfig& config, int64_t rows, int threads) {
  const int64_t widest = std::max({config.hidden, config.AnyDense() ? config.intermediate : 0,
                                   config.experts.intermediate, config.QueryWidth()});
  const int64_t packed = rows * widest * static_cast<int64_t>(sizeof(float));
  // logits_postprocess: the selected rows, the same packed, and one tile of logits a thread.
  const int64_t selected = 2 * rows * config.hidden * static_cast<int64_t>(sizeof(float));
  const int64_t tiles = threads * kStreamRows * kVocabTile * static_cast<int64_t>(sizeof(float));
  return DecoderWorkspace::Bytes(config, ShardOf(config, {}, 0), {.tokens = rows}) + packed + selected +
         tiles;
}

int64_t Engine::StepRows(const DecoderConfig& config, const EngineOptions& options, int64_t longest,
                         int threads, int64_t draft_rows) {
  const int64_t wanted = options.chunk_size > 0 ? options.chunk_size : longest;
  const int64_t sampled = options.batch_size + draft_rows;
  const int64_t fixed = ScoringBytes(config, sampled, threads);
  const int64_t a_row = ScoringBytes(config, sampled + 1, threads) - fixed;
  // A row has as many times the activations as it has experts, and each expert needs many rows.
  const int64_t most = kStepBytes * std::max<int64_t>(1, config.experts.per_token);
  return std::min(wanted, std::max(kMinStepRows, (most - fixed) / a_row));
}

Status Engine::Check(std::span<const Request> requests) const {
  const KvPagePool& pool = replicas_.front().pool;
  for (const Request& request : requests) {
    RETURN_IF_ERROR(CheckRequest(request, runtime_->config()));
    const int64_t pages = pool.PagesFor(static_cast<int64_t>(request.tokens.size()) + request.max_new_tokens);
    if (request.max_new_tokens > 0 && !options_.generates) {
      return InvalidInput("new tokens: got {}, want none of an engine that only scores (request {})",
                          request.max_new_tokens, request.id);
    }
    if (pages <= pool.max_pages()) continue;
    if (options_.memory_limit > 0) {
      const MemoryPlan plan = PlanOf(*runtime_, options_);
      return InvalidInput("--memory-limit: got {} bytes, want at least {} ({}) (request {})", plan.limit,
                          plan.Needs(pages), DescribeParts(plan, pages), request.id);
    }
    return InvalidInput(
        "KV cache: got a request that needs {} bytes, want at most the {} bytes available (request {})",
        pages * pool.page_bytes(), pool.max_pages() * pool.page_bytes(), request.id);
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
  int64_t longest_sequence = 1;
  for (const Request& request : requests) {
    longest_sequence =
        std::max(longest_sequence, static_cast<int64_t>(request.tokens.size()) + request.max_new_tokens);
  }
  done_.assign(requests.size(), std::nullopt);
  next_request_ = next_result_ = 0;
  result_bytes_ = 0;
  for (Replica& replica : replicas_) {
    replica.free_slots.clear();
    for (int64_t slot = std::max<int64_t>(1, in_flight); slot >= 1; --slot)
      replica.free_slots.push_back(static_cast<uint32_t>(slot));
  }
  stats_ = {};
  return driver_->Prepare({.max_rows = max_rows,
                           .max_sequences = std::max<int64_t>(1, in_flight),
                           .max_sequence_length = longest_sequence,
                           .total_pages = replicas_.front().pool.end_id()});
}

Status Engine::Run(std::span<const Request> requests, EngineListener& listener) {
  RETURN_IF_ERROR(Check(requests));
  if (requests.empty()) return {};
  RETURN_IF_ERROR(Prepare(requests));
  const Status status = RunAll(requests, listener);
  ReleaseAll();  // what a run that failed or was cancelled left behind
  return status;
}

Status Engine::RunAll(std::span<const Request> requests, EngineListener& listener) {
  int64_t total = 0;
  for (const Request& request : requests)
    total += static_cast<int64_t>(request.tokens.size()) + request.max_new_tokens;
  while (next_result_ < requests.size()) {
    if (options_.cancelled != nullptr && options_.cancelled->load(std::memory_order_relaxed)) {
      return std::unexpected(Error{ErrorCode::kCancelled, fmt::format("interrupted: {} of {} requests done",
                                                                      next_result_, requests.size())});
    }
    Admit(requests);
    RETURN_IF_ERROR(Step(listener));
    listener.OnProgress(stats_.rows_run + stats_.rows_reused - stats_.drafts_rejected, total);
    Retire();
    for (; next_result_ < requests.size() && done_[next_result_]; ++next_result_) {
      result_bytes_ -= done_[next_result_]->Bytes();
      RETURN_IF_ERROR(listener.OnResult(next_result_, *std::move(done_[next_result_])));
    }
  }
  return {};
}

void Engine::Admit(std::span<const Request> requests) {
  while (next_request_ < requests.size() &&
         static_cast<int64_t>(active_.size()) < options_.batch_size * std::ssize(replicas_)) {
    if (!waiting_) waiting_ = Begin(requests[next_request_], next_request_);
    const int64_t bytes = result_bytes_ + waiting_->result.Bytes();
    if (bytes > options_.result_bytes && !active_.empty()) return;
    if (!Place(*waiting_)) return;
    result_bytes_ = bytes;
    stats_.result_bytes = std::max(stats_.result_bytes, bytes);
    active_.push_back(*std::move(waiting_));
    waiting_.reset();
    ++next_request_;
  }
}

// With memory for the whole result: steps append to it and allocate nothing.
Sequence Engine::Begin(const Request& request, size_t index) const {
  const DecoderConfig& config = runtime_->config();
  Sequence sequence;
  sequence.index = index;
  sequence.request = &request;
  sequence.reads_prefix = !request.max_logits && options_.hidden_states == ReturnHiddenStates::kNone;
  RequestResult& result = sequence.result;
  result.tokens.reserve(sequence.length());
  result.tokens = request.tokens;
  result.prompt_tokens = static_cast<int64_t>(request.tokens.size());
  result.first_logprob = std::min(request.score_from, result.prompt_tokens);
  result.top_k = static_cast<int32_t>(std::min<int64_t>(request.top_logprobs, config.vocab));
  if (request.max_logits) result.max_logits.assign(config.layers * config.heads, kNegInf);
  const int64_t entries = sequence.length() - result.first_logprob;
  result.logprobs.reserve(entries);
  result.ranks.reserve(result.prompt_tokens - result.first_logprob);
  result.top.reserve(entries * result.top_k);
  if (request.draft_tokens > 0) sequence.drafts.reserve(draft_limit_);
  const int64_t pages = replicas_.front().pool.PagesFor(sequence.length());
  sequence.pages.reserve(pages);
  sequence.prefix.reserve(pages);
  return sequence;
}

// On the replica with the fewest sequences that has the memory.
bool Engine::Place(Sequence& sequence) {
  order_.clear();
  for (int r = 0; r < std::ssize(replicas_); ++r) {
    const auto behind = std::ranges::find_if(
        order_, [&](int other) { return replicas_[other].active > replicas_[r].active; });
    order_.insert(behind, r);
  }
  for (int r : order_) {
    Replica& replica = replicas_[r];
    if (replica.active == options_.batch_size) continue;
    sequence.replica = r;
    if (replica.prefixes.Admit(replica.pool, sequence, sequence.length(),
                               /*alone=*/replica.active == 0)) {
      ++replica.active;
      sequence.slot = replica.free_slots.back();
      replica.free_slots.pop_back();
      return true;
    }
  }
  return false;
}

// The sequences that have rows to run: one whose prefix an earlier one is about to run waits for it.
void Engine::ChooseSequences() {
  runnable_.clear();
  copies_.clear();
  for (auto sequence = active_.begin(); sequence != active_.end(); ++sequence) {
    Replica& replica = replicas_[sequence->replica];
    if (!sequence->started) {
      if (std::any_of(active_.begin(), sequence, [&](const Sequence& earlier) {
            return earlier.replica == sequence->replica && replica.prefixes.Awaits(*sequence, earlier);
          })) {
        continue;
      }
      page_copies_.clear();
      stats_.rows_reused += replica.prefixes.Start(replica.pool, *sequence, page_copies_);
      for (const PageCopy& copy : page_copies_) copies_.push_back({sequence->replica, copy.from, copy.to});
    }
    Draft(*sequence);
    runnable_.push_back(&*sequence);
  }
}

// One micro-batch a stage, as far as sequences go around.
void Engine::PlanMicroBatches() {
  micro_batches_.resize(runtime_->options().degrees.pp);
  in_step_ =
      std::span(micro_batches_).first(std::max<size_t>(1, std::min(micro_batches_.size(), runnable_.size())));
  for (size_t m = 0; m < in_step_.size(); ++m) {
    MicroBatch& batch = in_step_[m];
    batch.entries.clear();
    for (int replica = 0; replica < std::ssize(replicas_); ++replica) {
      chosen_.clear();
      for (size_t i = m; i < runnable_.size(); i += in_step_.size()) {
        if (runnable_[i]->replica == replica) chosen_.push_back(runnable_[i]);
      }
      PlanStep(chosen_, row_budget_, planned_);
      batch.entries.insert(batch.entries.end(), planned_.begin(), planned_.end());
    }
    batch.copies.clear();
  }
  in_step_.front().copies.swap(copies_);
}

void Engine::Draft(Sequence& sequence) const {
  sequence.drafts.clear();
  const Request& request = *sequence.request;
  const bool observed = request.max_logits || options_.hidden_states != ReturnHiddenStates::kNone ||
                        !runtime_->config().declares.state.empty();
  if (request.draft_tokens == 0 || observed || sequence.NextKind() != RowKind::kSample) return;
  // The row that accepts the last draft gives one token more.
  const int64_t wanted =
      request.max_new_tokens - (static_cast<int64_t>(sequence.result.tokens.size()) - sequence.prompt_size());
  ProposeDrafts(sequence.result.tokens, std::min({int64_t{request.draft_tokens}, draft_limit_, wanted - 1}),
                sequence.drafts);
}

Status Engine::Step(EngineListener& listener) {
  ChooseSequences();
  PlanMicroBatches();
  return driver_->Run(in_step_, [this, &listener](int64_t index, const ModelOutputs& outputs) {
    return Finish(in_step_[index], outputs, listener);
  });
}

void Engine::Retire() {
  bool any = false;
  for (Sequence& sequence : active_) {
    if (!sequence.finished) continue;
    Release(sequence);
    done_[sequence.index] = std::move(sequence.result);
    any = true;
  }
  if (any) std::erase_if(active_, [](const Sequence& sequence) { return sequence.finished; });
}

void Engine::Release(Sequence& sequence) {
  Replica& replica = replicas_[sequence.replica];
  replica.prefixes.Retire(replica.pool, sequence);
  replica.free_slots.push_back(sequence.slot);
  --replica.active;
}

void Engine::ReleaseAll() {
  for (Sequence& sequence : active_) Release(sequence);
  active_.clear();
  waiting_.reset();
}

}  // namespace plumbline
