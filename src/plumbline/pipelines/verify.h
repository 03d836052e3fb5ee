// The invariance suite on one model: the same requests under every way of running them, compared bit for bit.
//
// Requests are ragged and fixed (token ids from Philox): eight that are scored, with top-5 alternatives,
// attention maxima and normalised hidden states of every row, and three that generate, two greedily and one
// by chance, with hidden states of each last row. The first case is the reference. In the batch cases
// strangers run among them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/pipelines/runtime.h"

namespace plumbline {

// One way of running the requests.
struct VerifyCase {
  std::string name;  // "threads 3"
  int threads = 1;
  Isa isa = Isa::kAvx2;
  int64_t chunk_size = 512;  // 0: all
  int64_t batch_size = 16;
  int64_t page_size = 64;
  bool strangers = false;
  bool short_only = false;  // without requests above 65 tokens: steps of one row are slow
};

// The reference, threads 1, 2, 3, 5, chunks 1, 2, 7, 16, 64 and all, batches 1, 2, 7, 8, 31, 33, pages 64 and
// 128, and every instruction set of this machine.
std::vector<VerifyCase> VerifyCases(const RuntimeOptions& options);

inline constexpr std::array<std::string_view, 7> kVerifyQuantities = {
    "log_probs",          "top_k",
    "max_logits",         "hidden_states_all_normalized",
    "hidden_states_last", "generated_tokens",
    "generated_log_probs"};

// The 32-bit words that each request gave, by quantity: float32 bits or ids. top_k: id, then log-prob.
struct VerifyAnswer {
  std::array<std::vector<uint32_t>, kVerifyQuantities.size()> words;
};

struct VerifyReport {
  bool ok = true;
  std::string difference;                                     // where not ok: the first one
  int64_t cases = 0;                                          // run
  std::array<std::string, kVerifyQuantities.size()> digests;  // SHA-256 of the reference's words
};

// Hears each case as it is done: `difference` is empty where it gave the reference's bits.
using VerifyProgress = std::function<Status(const VerifyCase& done, const std::string& difference)>;

// Every case, whether an earlier one differs or not. A NaN anywhere is an error, whatever it equals.
Result<VerifyReport> Verify(const Runtime& runtime, const std::atomic<bool>* cancelled,
                            const VerifyProgress& progress);

// The first word in which answers to the same requests differ, as "log_probs: got -1.5, want -1.25 (request
// 3, word 17)"; empty where none does.
std::string FirstDifference(const std::vector<VerifyAnswer>& got, const std::vector<VerifyAnswer>& want);

// Refuses NaN in any float32 quantity.
Status CheckNoNan(const std::vector<VerifyAnswer>& answers);

}  // namespace plumbline
