// Runs requests: admits them as memory allows, mixes their rows into steps, and hands back results in input
// order.
//
// A step is three verbs: plan (which rows), run (the decoder, on all ranks), finish (log-probs, next tokens).
// What a request gets depends on its own tokens only, never on what it shared a step with, nor on how many
// ranks there are.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plumbline/kernels/logprobs/logprobs.h"
#include "plumbline/nn/distributed_logits_postprocess.h"
#include "plumbline/pipelines/engine_options.h"
#include "plumbline/pipelines/kv_pages.h"
#include "plumbline/pipelines/memory_plan.h"
#include "plumbline/pipelines/prefix_reuse.h"
#include "plumbline/pipelines/request.h"
#include "plumbline/pipelines/runtime.h"
#include "plumbline/pipelines/step_driver.h"
#include "plumbline/pipelines/step_plan.h"

namespace plumbline {

// What the last run did.
struct EngineStats {
  int64_t rows_run = 0;     // through the decoder
  int64_t rows_reused = 0;  // of prompts, not run because a prefix was known
  int64_t drafts_accepted = 0;
  int64_t drafts_rejected = 0;  // run for nothing
  int64_t result_bytes = 0;     // the most that results held at a time, before they were handed back
};

// What the caller hears as the run goes on. Called from the thread that called Run.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  // A token was generated: the last of result.tokens, with the last log-prob. False ends the generation.
  virtual bool OnToken(size_t request, const RequestResult& result);
  // Hidden states of rows [first_row, first_row + n) of a request, as logits_postprocess gives them for its
  // mode.
  virtual Status OnHiddenStates(size_t request, int64_t first_row,
                                std::span<const MatrixView<const float>> states);
  // In request order. An error stops the run.
  virtual Status OnResult(size_t request, RequestResult result) = 0;
  virtual void OnProgress(int64_t rows_done, int64_t rows_total);
};

class Engine {
 public:
  // Refuses a page size that is not a multiple of 64, layers out of range, sizes below 1, and a memory limit
  // without room for one page. `runtime` outlives the engine.
  static Result<Engine> Create(const Runtime& runtime, EngineOptions options);

  // What CheckRequest refuses, and requests whose keys and values could never fit.
  Status Check(std::span<const Request> requests) const;

  // Checks every request before running any.
  Status Run(std::span<const Request> requests, EngineListener& listener);

  const EngineStats& stats() const { return stats_; }

  // Prompt rows of a step and replica: `chunk_size` (or `longest`, where that is 0), fewer where the
  // activations of that many, of a row a sequence and of `draft_rows` would pass 24 MiB, but never fewer than
  // 64 for that reason. No result depends on it.
  static int64_t StepRows(const DecoderConfig& config, const EngineOptions& options, int64_t longest,
                          int threads, int64_t draft_rows);

  // Bytes that scoring on one rank holds beside weights and KV pages, with steps of at most `rows` rows: it
  // does not grow with the length of a prompt.
  static int64_t ScoringBytes(const DecoderConfig& config, int64_t rows, int threads);

 private:
  // The sequences of one data-parallel replica.
  struct Replica {
    KvPagePool pool;
    PrefixReuse prefixes;
    int64_t active = 0;
    std::vector<uint32_t> free_slots;  // of request state
  };
  using Entries = std::span<const StepEntry>;

  Engine(const Runtime& runtime, EngineOptions options, int64_t kv_bytes);

  Status Prepare(std::span<const Request> requests);
  Status RunAll(std::span<const Request> requests, EngineListener& listener);
  void Admit(std::span<const Request> requests);
  Sequence Begin(const Request& request, size_t index) const;
  bool Place(Sequence& sequence);
  Status Step(EngineListener& listener);
  void ChooseSequences();
  void PlanMicroBatches();
  void Draft(Sequence& sequence) const;
  Status Finish(const MicroBatch& batch, const ModelOutputs& outputs, EngineListener& listener);
  Status FinishScored(Entries entries, const ScoredRows& scores);
  Status FinishSampled(Entries entries, MatrixView<const float> logits, EngineListener& listener);
  Status SampleRows(Sequence& sequence, MatrixView<const float> logits, int64_t first_row);
  Status EmitHiddenStates(Entries entries, const ModelOutputs& outputs, EngineListener& listener);
  Status TakeToken(Sequence& sequence, int32_t token, int64_t output, EngineListener& listener);
  void TakeMaxLogits(Entries entries, std::span<const float> max_logits);
  void Retire();
  void Release(Sequence& sequence);
  void ReleaseAll();

  const Runtime* runtime_;
  EngineOptions options_;
  KernelContext context_;
  std::vector<Replica> replicas_;
  std::unique_ptr<StepDriver> driver_;
  int64_t row_budget_ = 0;
  int64_t draft_limit_ = 0;  // guesses a sequence

  std::deque<Sequence> active_;      // in request order
  std::optional<Sequence> waiting_;  // the next one, for which there was no room
  size_t next_request_ = 0;
  std::vector<std::optional<RequestResult>> done_;  // by request: finished, waiting for earlier ones
  size_t next_result_ = 0;
  int64_t result_bytes_ = 0;  // of active_ and done_
  EngineStats stats_;

  // Of the step; kept so that a step allocates nothing.
  std::vector<int> order_;  // of replicas
  std::vector<Sequence*> runnable_, chosen_;
  std::vector<StepEntry> planned_;
  std::vector<PageCopy> page_copies_;
  std::vector<std::array<int64_t, 3>> copies_;
  std::vector<MicroBatch> micro_batches_;  // a stage
  std::span<MicroBatch> in_step_;          // the first of them
  std::vector<uint32_t> sampled_offsets_;  // [sampled rows + 1]
  std::vector<uint32_t> sampled_;          // [sampled rows]
  std::vector<int32_t> top_n_;             // [sampled rows]
  std::vector<uint8_t> echo_;              // [sampled rows]
  RaggedLogProbs sampled_logprobs_;
  SamplingScratch sampling_;
  HiddenStatesShape hidden_shape_;
  std::vector<int64_t> next_state_;                   // [kinds, replicas] rows handed on
  std::vector<MatrixView<const float>> state_views_;  // of one entry
};

}  // namespace plumbline
