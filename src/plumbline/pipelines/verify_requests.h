// What verify asks of a model, and how it runs and records one case.
#pragma once

#include <cstdint>
#include <vector>

#include "plumbline/pipelines/request.h"
#include "plumbline/pipelines/verify.h"

namespace plumbline {

struct VerifyRequests {
  std::vector<Request> requests;
  // Index of a request's answer; -1 for a stranger.
  std::vector<int> answer_of;
};

// Scored requests, clipped to the context, or with `generate` those that generate. Answers are numbered alike
// whether strangers stand between them or not, and in the order of their lengths, so that `short_only` leaves
// the first ones.
VerifyRequests MakeVerifyRequests(const DecoderConfig& config, const VerifyCase& how, bool generate);

// Runs one case: the answers of the scored requests, then of those that generate. `runtime` has the case's
// threads and instruction set.
struct VerifyAnswers {
  std::vector<VerifyAnswer> scored, generated;
};
Result<VerifyAnswers> RunVerifyCase(const Runtime& runtime, const VerifyCase& how,
                                    const std::atomic<bool>* cancelled);

}  // namespace plumbline
