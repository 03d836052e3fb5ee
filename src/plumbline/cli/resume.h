// Where an interrupted `score --format jsonl --output FILE` stopped, read from what it left behind.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "plumbline/cli/result_json.h"
#include "plumbline/pipelines/score_requests.h"

namespace plumbline::cli {

struct ResumePoint {
  size_t records = 0;       // complete lines: the first requests of the input
  int64_t bytes = 0;        // of those lines; what follows is part of a record
  std::string last_record;  // the last of those lines; empty where there is none
};

// Reads the records of `path`. A line that is not a record, a record whose id is not that of the request at
// its place, and more records than requests are errors that name the line.
Result<ResumePoint> FindResumePoint(const std::string& path, std::span<const InputDocument> inputs);

// What the rest of the run would write.
struct ResumedRun {
  const ReceiptContext& receipt;
  const ScoreDocument& last_document;  // the request of the last record
  int64_t top_k = 0;
  bool max_logits = false;
};

// Refuses a last record of other numerics, another model, another compute type, other tokens or other fields
// than the rest of the run would write: one file has one meaning.
Status CheckLastRecord(const ResumePoint& point, const ResumedRun& run, const std::string& path);

}  // namespace plumbline::cli
