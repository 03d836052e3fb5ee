// What verify asks of a model, and how it runs and records one case.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "plumbline/pipelines/request.h"
#include "plumbline/pipelines/verify.h"

namespace plumbline {

struct VerifyRequests {
  std::vector<Request> requests;
  // Index of a request's answer; -1 for a stranger.
  std::vector<int> answer_of;
  // Run before the others: what of them the case wants known.
  std::vector<Request> earlier;
};

// Scored requests, clipped to the context, or with `generate` those that generate. Answers are numbered alike
// whether strangers stand between them or not. Not `observed`: without attention maxima.
VerifyRequests MakeVerifyRequests(const DecoderConfig& config, const VerifyCase& how, bool generate,
                                  bool observed);

// Runs one case: the answers of the scored requests, then of those that generate. `runtime` has the case's
// threads and instruction set. Not `observed`: without attention maxima and hidden states.
struct VerifyAnswers {
  std::vector<VerifyAnswer> scored, generated;
  int64_t rows_reused = 0, drafts_accepted = 0, drafts_rejected = 0;
};
Result<VerifyAnswers> RunVerifyCase(const Runtime& runtime, const VerifyCase& how, bool observed,
                                    const std::atomic<bool>* cancelled);

}  // namespace plumbline
