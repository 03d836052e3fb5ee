#include "plumbline/pipelines/request.h"

namespace plumbline {

Status CheckRequest(const Request& request, const DecoderConfig& config) {
  if (request.tokens.empty())
    return InvalidInput("prompt: got no tokens, want at least one (request {})", request.id);
  for (size_t i = 0; i < request.tokens.size(); ++i) {
    const int32_t token = request.tokens[i];
    if (token < 0 || token >= config.vocab) {
      return InvalidInput("token id: got {} at index {}, want 0 to {} (request {})", token, i,
                          config.vocab - 1, request.id);
    }
  }
  const int64_t length = static_cast<int64_t>(request.tokens.size()) + request.max_new_tokens;
  if (length > config.max_positions) {
    return InvalidInput(
        "sequence: got {} prompt and {} new tokens, want at most the context of {} (request {})",
        request.tokens.size(), request.max_new_tokens, config.max_positions, request.id);
  }
  if (request.score_from < 1) {
    return InvalidInput("score_from: got {}, want 1 or more (request {})", request.score_from, request.id);
  }
  if (request.max_new_tokens < 0) {
    return InvalidInput("new tokens: got {}, want 0 or more (request {})", request.max_new_tokens,
                        request.id);
  }
  if (request.top_logprobs < 0) {
    return InvalidInput("top log-probs: got {}, want 0 or more (request {})", request.top_logprobs,
                        request.id);
  }
  if (request.draft_tokens < 0 || request.draft_tokens > kMaxDraftTokens) {
    return InvalidInput("draft tokens: got {}, want 0 to {} (request {})", request.draft_tokens,
                        kMaxDraftTokens, request.id);
  }
  return CheckSamplingOptions(request.sampling);
}

}  // namespace plumbline
