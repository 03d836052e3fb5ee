// A request in flight: how far it is, its pages, and the result as it grows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plumbline/pipelines/prefix_cache.h"
#include "plumbline/pipelines/request.h"

namespace plumbline {

// What a step does with a run of rows of one sequence. A run is of one kind only.
enum class RowKind : uint8_t {
  kScore,   // each row's log-prob of the next prompt token is wanted
  kSample,  // the last token's row, whose logits choose the next token, and a row for each draft
  kSilent,  // only its keys and values (and observations) are wanted
};
inline constexpr int kRowKinds = 3;

struct Sequence {
  size_t index = 0;  // of the request among all
  const Request* request = nullptr;
  RequestResult result;   // result.tokens is the sequence so far
  int64_t processed = 0;  // tokens in the cache
  std::vector<uint32_t> pages;
  int replica = 0;    // whose pages they are
  uint32_t slot = 0;  // of the replica's request state
  // Leading pages that belong to the prefix cache (until the sequence has started: what is known of its
  // prefix).
  std::vector<PrefixNode*> prefix;
  bool reads_prefix = false;  // may take pages from the cache instead of running their rows
  bool started = false;
  std::vector<int32_t> drafts;  // guesses of the tokens that follow, for the next step
  bool finished = false;

  int64_t prompt_size() const { return result.prompt_tokens; }
  // Tokens it may come to.
  int64_t length() const { return std::ssize(request->tokens) + request->max_new_tokens; }
  bool generates() const { return request->max_new_tokens > 0; }

  // The first row that scores: row r gives the log-prob of token r + 1.
  int64_t first_scored_row() const { return request->score_from - 1; }

  RowKind NextKind() const {
    if (generates() && processed >= prompt_size() - 1) return RowKind::kSample;
    return processed < first_scored_row() ? RowKind::kSilent : RowKind::kScore;
  }
  // Rows of NextKind() that could run now. Where nothing is generated the last row scores nothing, but rides
  // along.
  int64_t NextRows() const {
    const int64_t end = prompt_size() - (generates() ? 1 : 0);
    switch (NextKind()) {
      case RowKind::kSample:
        return 1 + static_cast<int64_t>(drafts.size());
      case RowKind::kSilent:
        return std::min(end, first_scored_row()) - processed;
      case RowKind::kScore:
        return end - processed;
    }
    return 0;
  }
};

}  // namespace plumbline
