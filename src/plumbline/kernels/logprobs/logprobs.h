// Log-probabilities of chosen tokens and the top-k of each row (seed 004; decoder contract, sections 3 and
// 4).
//
// Per row x[0 .. vocab): m = max x, s = sum exp(x - m), norm = -(m + log s), log p(v) = x[v] + norm.
// (m, s) is computed per tile of 1024 token ids (16 interleaved lanes and their tree inside a tile) and
// merged by the dyadic tree over tiles (numerics contract, section 2), so this materialised form and the
// streaming one (logprob_accumulator.h) agree bit for bit. Top-k is ordered by (value descending, token id
// ascending); ties keep the lowest ids.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/kernels/kernel_context.h"
#include "plumbline/kernels/logprobs/top_k.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

inline constexpr int kVocabTile = 1024;

// ---- Seed 004's operation over materialised logits. ----

// W = 2^levels columns: 2^levels - 1 top entries, then the chosen token. levels = 0: the chosen token only.
struct LogProbTensors {
  MatrixView<float> lp_logits;     // [outputs, W]
  MatrixView<uint32_t> lp_tokens;  // [outputs, W]; unused top slots hold (vocab, -inf)
};

// Three ragged arrays over the same B sequences; each may have its own length per sequence, and all are
// aligned at the sequences' ends. Output i of sequence b, r = lp_output_offsets[b + 1] - 1 - i places before
// its last one, is the log-probability of the token that follows: sampled_tokens[b] where r = 0, else
// tokens[token_row_offsets[b + 1] - r]; its logits are row logit_row_offsets[b + 1] - 1 - r. Rows and tokens
// past the last offset are padding and never read. Outputs must not overlap inputs.
struct LogProbInputs {
  MatrixView<const float> logits;               // [rows, vocab], ragged by batch
  std::span<const uint32_t> tokens;             // [T]
  std::span<const uint32_t> sampled_tokens;     // [B]
  std::span<const uint32_t> logit_row_offsets;  // [B + 1]
  std::span<const uint32_t> token_row_offsets;  // [B + 1]
  std::span<const uint32_t> lp_output_offsets;  // [B + 1]
};

// Checks every shape, offset and token id; nothing is computed before all are good. compute_... below require
// it. A sequence with outputs needs at least as many logits rows and tokens as outputs. Errors name the
// argument.
Status CheckLogProbInputs(const LogProbTensors& out, const LogProbInputs& in, int levels);

// One output row; `output_token_index` in [0, lp_output_offsets.back()). Preconditions: CheckLogProbInputs.
// Columns 0 .. W - 2: the logits above -inf, best first; last column: the position's token, also where it is
// among the best. A row that holds NaN or +inf, or nothing above -inf, has NaN for every value; a NaN logit
// is never among the best. Defined for levels 0 .. 8.
template <int levels>
void compute_log_probabilities_1tok(Isa isa, int64_t output_token_index, const LogProbTensors& out,
                                    const LogProbInputs& in);

// Every output row, in parallel. levels in [0, 8].
Status ComputeLogProbabilities(const KernelContext& context, int levels, const LogProbTensors& out,
                               const LogProbInputs& in);

// ---- The host driver (decoder contract, section 4.2). ----

struct LogProbabilities {
  std::vector<float> token_log_probabilities;
  std::vector<std::vector<std::pair<uint32_t, float>>>
      top_log_probabilities;  // chosen token appended if outside
  std::vector<uint32_t> sampled_token_ids;
};

// One decoder step. A request with echo gets the log-probabilities of all its tokens but the first and then
// of its sampled token, any other only the last of these.
struct RaggedLogProbRequest {
  std::span<const uint32_t> input_row_offsets;    // [B + 1]
  std::optional<MatrixView<const float>> logits;  // [T, vocab], required where a request echoes
  MatrixView<const float> next_token_logits;      // [B, vocab]
  std::span<const uint32_t> tokens;               // [T]
  std::span<const uint32_t> sampled_tokens;       // [B]
  std::span<const int32_t> batch_top_n;           // [B], any count >= 0; 0: no result for that request
  std::span<const uint8_t> batch_echo;            // [B]; any set: `logits` is required
};

// Each map of top_log_probabilities holds the min(top_n, number above -inf) best tokens, best first, then the
// position's token unless it is one of them. Checks what CheckLogProbInputs does before anything is computed.
Result<std::vector<std::optional<LogProbabilities>>> compute_log_probabilities_ragged(
    const KernelContext& context, const RaggedLogProbRequest& request);

// The same numbers in flat arrays that are reused from step to step: nothing is allocated once they have held
// as many.
struct RaggedLogProbs {
  std::vector<uint32_t> offsets;     // [B + 1]: sequence b has outputs [offsets[b], offsets[b + 1])
  std::vector<float> logprobs;       // [outputs] of the positions' tokens
  std::vector<uint32_t> tokens;      // [outputs]
  std::vector<int64_t> top_offsets;  // [outputs + 1]: room of min(top_n, vocab) entries each
  std::vector<TopEntry> top;         // (log-prob, id), best first
  std::vector<int32_t> top_counts;   // [outputs] entries that are there: those above -inf
  std::vector<uint32_t> logit_rows;  // [B + 1] where each sequence's logits begin
};
Status compute_log_probabilities_ragged(const KernelContext& context, const RaggedLogProbRequest& request,
                                        RaggedLogProbs& out);

}  // namespace plumbline
