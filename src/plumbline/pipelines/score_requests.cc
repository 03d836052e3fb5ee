#include "plumbline/pipelines/score_requests.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace plumbline {

Result<ScoreDocument> TokenizeDocument(const InputDocument& document, const Tokenizer* tokenizer,
                                       bool add_special) {
  ScoreDocument out{.id = document.id, .tokens = {}};
  if (document.tokens) {
    out.tokens = *document.tokens;
    return out;
  }
  if (tokenizer == nullptr) {
    return InvalidInput("request {}: got text for a checkpoint without tokenizer, want tokens", document.id);
  }
  if (!document.continuation) {
    if (document.text.empty()) {
      return InvalidInput("prompt: got an empty text, want at least one character (request {})", document.id);
    }
    out.tokens = tokenizer->Encode(document.text, add_special);
    return out;
  }
  const size_t space = document.text.find_last_not_of(' ') + 1;
  const std::string context = document.text.substr(0, space);
  const std::string continuation = document.text.substr(space) + *document.continuation;
  out.tokens = tokenizer->Encode(context + continuation, add_special);
  const size_t context_tokens = tokenizer->Encode(context, add_special).size();
  // Something must come before the first scored token, and something must be scored.
  out.continuation_begin = static_cast<int64_t>(std::max<size_t>(1, context_tokens));
  if (out.continuation_begin >= static_cast<int64_t>(out.tokens.size())) {
    return InvalidInput("continuation: got no token of its own, want at least one (request {})", document.id);
  }
  return out;
}

std::vector<Window> MakeWindows(int64_t length, int64_t context, int64_t stride) {
  if (stride <= 0 || length <= context) return {{.begin = 0, .end = length, .score_from = 1}};
  std::vector<Window> windows;
  int64_t scored = 1;  // tokens [0, scored) are done; index 0 has no log-prob
  for (int64_t begin = 0; scored < length; begin += stride) {
    const int64_t end = std::min(length, begin + context);
    windows.push_back({.begin = begin, .end = end, .score_from = scored - begin});
    scored = end;
  }
  return windows;
}

RequestResult JoinWindows(const ScoreDocument& document, std::vector<RequestResult> windows) {
  RequestResult joined = std::move(windows.front());
  joined.tokens = document.tokens;
  joined.prompt_tokens = static_cast<int64_t>(document.tokens.size());
  for (size_t w = 1; w < windows.size(); ++w) {
    const RequestResult& window = windows[w];
    joined.logprobs.insert(joined.logprobs.end(), window.logprobs.begin(), window.logprobs.end());
    joined.ranks.insert(joined.ranks.end(), window.ranks.begin(), window.ranks.end());
    joined.top.insert(joined.top.end(), window.top.begin(), window.top.end());
    for (size_t i = 0; i < joined.max_logits.size(); ++i) {
      const float other = window.max_logits[i];
      if (other > joined.max_logits[i] || std::isnan(other)) joined.max_logits[i] = other;
    }
  }
  return joined;
}

}  // namespace plumbline
