#include "plumbline/pipelines/verify_requests.h"

#include <algorithm>
#include <span>
#include <utility>

#include "plumbline/base/philox.h"

namespace plumbline {
namespace {

// One row, a few, and what lies around one and two pages of 64.
constexpr int64_t kScoredLengths[] = {1, 7, 64, 130};
constexpr int64_t kPromptLengths[] = {1, 12, 65, 130};
constexpr int64_t kPage = 64;
constexpr int64_t kNewTokens = 8;
constexpr int32_t kTop = 5;
// Keys of random tokens, apart from the numbers of requests.
constexpr uint32_t kGeneratedKey = 100, kStrangerKey = 1000, kTailKey = 2000;
constexpr int64_t kTail = 70;  // tokens behind a known prefix that belong to another request
constexpr int64_t kPeriod = 5;

// Tokens that repeat every `period`, or (0) do not.
std::vector<int32_t> RandomTokens(uint32_t key, int64_t length, int64_t vocab, int64_t period = 0) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<uint32_t>(period > 0 ? i % period : i);
    const uint32_t word = Philox4x32({0x706c756d, key}, {at, 0, 0, 0})[0];
    tokens.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

// Prompts of generations repeat themselves, so that drafts are proposed.
Request MakeRequest(const DecoderConfig& config, uint32_t number, int64_t length, bool generate) {
  const int64_t new_tokens = generate ? std::min(kNewTokens, config.max_positions - 1) : 0;
  length = std::min(length, config.max_positions - new_tokens);
  const uint32_t key = number + (generate ? kGeneratedKey : 0);
  Request request{.id = std::to_string(number),
                  .tokens = RandomTokens(key, length, config.vocab, generate ? kPeriod : 0)};
  request.top_logprobs = kTop;
  request.max_new_tokens = new_tokens;
  request.score_from = generate ? length : 1;
  // Greedy, by chance, greedy, almost greedy.
  if (generate && number % 2 == 1)
    request.sampling = {.temperature = number % 4 == 1 ? 0.8f : 0.1f, .seed = number};
  return request;
}

// Short ones of every kind.
Request MakeStranger(const DecoderConfig& config, uint32_t number, bool observed) {
  const int64_t new_tokens = number % 3 == 1 ? 3 : 0;
  const int64_t length = std::min<int64_t>(1 + 5 * number % 12, config.max_positions - new_tokens);
  const int64_t period = new_tokens > 0 ? kPeriod : 0;
  Request request{.id = std::to_string(kStrangerKey + number),
                  .tokens = RandomTokens(kStrangerKey + number, length, config.vocab, period)};
  request.top_logprobs = static_cast<int32_t>(number % 7);
  request.max_logits = observed && number % 2 == 0;
  request.score_from = new_tokens > 0 ? length : 1;
  request.max_new_tokens = new_tokens;
  if (number % 6 == 1) request.sampling = {.temperature = 1.0f, .seed = number};
  request.draft_tokens = static_cast<int32_t>(number % 4);
  return request;
}

// A request that begins with `known` tokens of this one and goes on in another way; kWhole: this one.
Request MakeEarlier(const DecoderConfig& config, const Request& request, int64_t known) {
  Request earlier = request;
  if (known >= static_cast<int64_t>(request.tokens.size())) return earlier;
  earlier.tokens.resize(known);
  const int64_t tail = std::min(kTail, config.max_positions - request.max_new_tokens - known);
  const std::vector<int32_t> others = RandomTokens(kTailKey, tail, config.vocab);
  earlier.tokens.insert(earlier.tokens.end(), others.begin(), others.end());
  // Not what this one goes on with, whatever that is.
  earlier.tokens[known] = static_cast<int32_t>((request.tokens[known] + 1) % config.vocab);
  if (request.max_new_tokens > 0) {
    earlier.max_new_tokens = 1;
    earlier.score_from = static_cast<int64_t>(earlier.tokens.size());
  }
  return earlier;
}

}  // namespace

VerifyRequests MakeVerifyRequests(const DecoderConfig& config, const VerifyCase& how, bool generate,
                                  bool observed) {
  const std::span<const int64_t> lengths =
      generate ? std::span<const int64_t>(kPromptLengths) : std::span<const int64_t>(kScoredLengths);
  const auto asked = static_cast<int64_t>(lengths.size()), total = asked + how.strangers;
  VerifyRequests out;
  out.answer_of.assign(total, -1);
  // Spread over the batch, begun elsewhere for every number of strangers; odd numbers turn the order round.
  for (int64_t i = 0; i < asked; ++i) {
    const int64_t place = (i * total / asked + how.strangers) % total;
    out.answer_of[place] = static_cast<int>(how.strangers % 2 == 0 ? i : asked - 1 - i);
  }
  uint32_t stranger = 0;
  for (const int answer : out.answer_of) {
    if (answer < 0) {
      out.requests.push_back(MakeStranger(config, stranger++, observed));
      continue;
    }
    Request request = MakeRequest(config, static_cast<uint32_t>(answer), lengths[answer], generate);
    request.max_logits = observed;
    request.draft_tokens = how.drafts;
    // Pages are what is known: shorter requests have none.
    if (how.known.value_or(0) > 0 && lengths[answer] >= kPage)
      out.earlier.push_back(MakeEarlier(config, request, *how.known));
    out.requests.push_back(std::move(request));
  }
  return out;
}

}  // namespace plumbline
