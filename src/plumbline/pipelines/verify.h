// The invariance suite on one model: the same requests under every way of running them, compared bit for bit.
//
// Requests are ragged and fixed (token ids from Philox): some are scored, with top-5 alternatives, attention
// maxima and normalised hidden states of every row, and some generate, greedily and by chance, with hidden
// states of each last row. The first case is the reference: no strangers, no prefix cache, no drafts.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/pipelines/runtime.h"

namespace plumbline {

// One way of running the requests.
struct VerifyCase {
  static constexpr int64_t kWhole = std::numeric_limits<int64_t>::max();

  std::string axis;   // "threads"
  std::string value;  // "3"
  int threads = 1;
  Isa isa = Isa::kAvx2;
  ParallelDegrees degrees;
  int64_t chunk_size = 512;  // 0: all
  int64_t batch_size = 64;
  int64_t page_size = 64;
  int64_t strangers = 0;  // other requests in flight, at places that depend on their number
  // Leading tokens of each request that the engine has run before, with other tokens behind them; kWhole: the
  // request itself was run before. Unset: the prefix cache is off.
  std::optional<int64_t> known;
  int32_t drafts = 0;
  // Prefixes are taken and drafts made only where attention maxima and hidden states are not wanted. So these
  // cases run twice, without them and with them, and both must give the reference's bits.
  bool unobserved_too = false;
};

// The reference, every axis by itself from the reference, and some mixed products. Degrees of parallelism
// only as the model can be cut, and only where the reference has one rank.
std::vector<VerifyCase> VerifyCases(const RuntimeOptions& options, const DecoderConfig& config);

enum VerifyQuantity : uint8_t { kLogProbs, kTopK, kHiddenStates, kMaxLogits, kGeneratedTokens };
inline constexpr std::array<std::string_view, 5> kVerifyQuantities = {"log_probs", "top_k", "hidden_states",
                                                                      "max_logits", "generated_tokens"};

// The 32-bit words that a request gave, by quantity: float32 bits or ids. top_k: id, then log-prob.
struct VerifyAnswer {
  std::array<std::vector<uint32_t>, kVerifyQuantities.size()> words;
};

using VerifyDigests = std::array<std::string, kVerifyQuantities.size()>;

struct VerifyCaseReport {
  VerifyCase how;
  // SHA-256 of each quantity's words; where a case runs twice and one of the two differs, that one's.
  VerifyDigests digests;
  std::string difference;   // from the reference, the first one; empty: none
  int64_t rows_reused = 0;  // rows that a known prefix spared
  int64_t drafts_accepted = 0, drafts_rejected = 0;
};

struct VerifyReport {
  bool ok = true;
  std::string difference;               // where not ok: the first one
  std::vector<VerifyCaseReport> cases;  // the reference first
};

// Hears each case as it is done.
using VerifyProgress = std::function<Status(const VerifyCaseReport& done)>;

// Every case, whether an earlier one differs or not. A NaN anywhere is an error, whatever it equals.
Result<VerifyReport> Verify(const Runtime& runtime, const std::atomic<bool>* cancelled,
                            const VerifyProgress& progress);

// The first word in which answers to the same requests differ, as "log_probs: got -1.5, want -1.25 (request
// 3, word 17)"; empty where none does. Not `observed`: `got` has neither hidden states nor maxima.
std::string FirstDifference(const std::vector<VerifyAnswer>& got, const std::vector<VerifyAnswer>& want,
                            bool observed = true);

// Refuses NaN in any float32 quantity.
Status CheckNoNan(const std::vector<VerifyAnswer>& answers);

}  // namespace plumbline
