// From documents to engine requests and back: tokenising, and windows over documents longer than the context.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/io/request_lines.h"
#include "plumbline/pipelines/request.h"
#include "plumbline/text/tokenizer.h"

namespace plumbline {

struct ScoreDocument {
  std::string id;
  std::vector<int32_t> tokens;
  int64_t continuation_begin = 0;  // first token of the continuation; 0: the document has none
};

// Tokens of a document. A context's trailing spaces count to its continuation, and the two are tokenised
// together, as lm-evaluation-harness does. `tokenizer` may be null where every document brings tokens.
// `add_special`: BOS rules apply.
Result<ScoreDocument> TokenizeDocument(const InputDocument& document, const Tokenizer* tokenizer,
                                       bool add_special);

// Windows [begin, end) of a document of `length` tokens: one where it fits; else `context` tokens each, begun
// every `stride` tokens, each scoring what the one before did not reach. stride 0: no windows (a document
// that does not fit is an error of CheckRequest).
struct Window {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t score_from = 1;  // relative to begin
};
std::vector<Window> MakeWindows(int64_t length, int64_t context, int64_t stride);

// The result of the whole document from its windows' results, in order. max_logits: the maximum over windows.
RequestResult JoinWindows(const ScoreDocument& document, std::vector<RequestResult> windows);

}  // namespace plumbline
