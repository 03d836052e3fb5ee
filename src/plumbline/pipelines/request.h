// What the engine is asked, and what it answers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/kernels/sampling/sampling.h"
#include "plumbline/nn/decoder_config.h"

namespace plumbline {

inline constexpr int32_t kMaxDraftTokens = 64;

struct Request {
  std::string id;
  std::vector<int32_t> tokens;  // the prompt, special tokens included; at least one
  // Log-probs are wanted of prompt tokens score_from, score_from + 1, ... (index 0 has none): at least 1, the
  // prompt's length or more for none.
  int64_t score_from = 1;
  int32_t top_logprobs = 0;
  bool max_logits = false;

  int64_t max_new_tokens = 0;  // tokens to generate
  SamplingOptions sampling;
  std::vector<int32_t> stop_ids;  // ends the generation, itself the last token
  // Tokens guessed and checked in one step, 0 to kMaxDraftTokens. Changes no bit of the result. None are
  // guessed where max_logits or hidden states are wanted: a wrong guess would be observed.
  int32_t draft_tokens = 0;
};

// Refuses an empty prompt, ids outside the vocabulary and sequences longer than the context.
Status CheckRequest(const Request& request, const DecoderConfig& config);

enum class FinishReason : uint8_t {
  kLength,  // max_new_tokens generated, or nothing to generate
  kStop,    // a stop id, or the listener said so
};

struct RequestResult {
  std::vector<int32_t> tokens;  // the prompt, then what was generated
  int64_t prompt_tokens = 0;
  int64_t first_logprob = 0;  // index of the first token that has a log-prob
  // One entry per token from first_logprob on.
  std::vector<float> logprobs;
  std::vector<int64_t> ranks;                  // 1 = most likely
  std::vector<std::pair<int32_t, float>> top;  // [entries, top_k] (value descending, id ascending)
  int32_t top_k = 0;                           // min(top_logprobs, vocab)
  std::vector<float> max_logits;               // [layers, heads], or empty
  FinishReason finish_reason = FinishReason::kLength;

  std::span<const std::pair<int32_t, float>> Top(int64_t entry) const {
    return {top.data() + entry * top_k, static_cast<size_t>(top_k)};
  }

  // What the lists hold memory for.
  int64_t Bytes() const {
    const auto bytes = [](const auto& list) {
      return static_cast<int64_t>(list.capacity() * sizeof(*list.data()));
    };
    return bytes(tokens) + bytes(logprobs) + bytes(ranks) + bytes(top) + bytes(max_logits);
  }
};

}  // namespace plumbline
