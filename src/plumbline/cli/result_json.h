// Results as the JSON of the product's contract: names, fields and their order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plumbline/pipelines/engine.h"

namespace plumbline::cli {

// How a run was made; every result carries it.
struct ReceiptContext {
  const Runtime* runtime = nullptr;
  int64_t chunk_size = 0;  // 0: "all"
};

struct ScoreRecord {
  std::string id;
  int64_t continuation_begin = 0;  // 0: no continuation
  RequestResult result;
};

// One object and a newline. `pretty`: a line a field.
std::string ScoreJson(const ScoreRecord& record, const ReceiptContext& receipt, bool pretty);

struct GenerateRecord {
  std::string id;
  std::string text;  // what was generated, stop string removed
  bool with_logprobs = false;
  RequestResult result;
};
std::string GenerateJson(const GenerateRecord& record, const ReceiptContext& receipt, bool pretty);

// Sum of the log-probs that count (the continuation's, where there is one), in float64, ascending.
struct ScoreSummary {
  double sum_logprob = 0;
  double perplexity = 0;  // exp(-sum / tokens); 1 where nothing counts
  int64_t tokens = 0;
};
ScoreSummary Summarize(const ScoreRecord& record);

}  // namespace plumbline::cli
