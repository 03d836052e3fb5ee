// Log-probabilities of chosen tokens and the top-k of each row (seed 004; decoder contract, sections 3 and 4).
//
// Per row x[0 .. vocab): m = max x, s = sum exp(x - m), norm = -(m + log s), log p(v) = x[v] + norm.
// (m, s) is computed per tile of 1024 token ids (16 interleaved lanes and their tree inside a tile) and merged
// by the dyadic tree over tiles (numerics contract, section 2), so materialised and fused forms agree bit for
// bit. Top-k is ordered by (value descending, token id ascending); ties keep the lowest ids.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/kernels/kernel_context.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

inline constexpr int kVocabTile = 1024;

// ---- Seed 004's operation over materialised logits. ----

// W = 2^levels columns: 2^levels - 1 top entries, then the chosen token. levels = 0: the chosen token only.
struct LogProbTensors {
  MatrixView<float> lp_logits;     // [outputs, W]
  MatrixView<uint32_t> lp_tokens;  // [outputs, W]; unused top slots hold (vocab, -inf)
};
struct LogProbInputs {
  MatrixView<const float> logits;               // [rows, vocab], ragged by batch
  std::span<const uint32_t> tokens;             // [T]
  std::span<const uint32_t> sampled_tokens;     // [B]
  std::span<const uint32_t> logit_row_offsets;  // [B + 1]
  std::span<const uint32_t> token_row_offsets;  // [B + 1]
  std::span<const uint32_t> lp_output_offsets;  // [B + 1]
};

// Checks every shape, offset and token id; nothing is computed before all are good. compute_... below require it.
Status CheckLogProbInputs(const LogProbTensors& out, const LogProbInputs& in, int levels);

// One output row; `output_token_index` in [0, lp_output_offsets.back()). Preconditions: CheckLogProbInputs.
template <int levels>
void compute_log_probabilities_1tok(Isa isa, int64_t output_token_index, const LogProbTensors& out,
                                    const LogProbInputs& in);

// Every output row, in parallel. levels in [0, 8].
Status ComputeLogProbabilities(const KernelContext& context, int levels, const LogProbTensors& out,
                               const LogProbInputs& in);

// ---- The host driver (decoder contract, section 4.2). ----

struct LogProbabilities {
  std::vector<float> token_log_probabilities;
  std::vector<std::vector<std::pair<uint32_t, float>>> top_log_probabilities;  // chosen token appended if outside
  std::vector<uint32_t> sampled_token_ids;
};
struct RaggedLogProbRequest {
  std::span<const uint32_t> input_row_offsets;      // [B + 1]
  std::optional<MatrixView<const float>> logits;    // [T, vocab], required where a request echoes
  MatrixView<const float> next_token_logits;        // [B, vocab]
  std::span<const uint32_t> tokens;                 // [T]
  std::span<const uint32_t> sampled_tokens;         // [B]
  std::span<const int32_t> batch_top_n;             // [B]; 0: no result for that request
  std::span<const uint8_t> batch_echo;              // [B]
};
Result<std::vector<std::optional<LogProbabilities>>> compute_log_probabilities_ragged(
    const KernelContext& context, const RaggedLogProbRequest& request);

// ---- The streaming form: rows seen one vocabulary tile at a time. ----

// What one row has after every tile: token ids ordered (value descending, id ascending), exactly min(k, vocab).
struct RowLogProbs {
  float chosen_logprob = 0.0f;
  int64_t rank = 0;  // 1 + #{v : x[v] > x[chosen], or equal with v < chosen}
  std::vector<std::pair<int32_t, float>> top;  // (id, log-prob)
};

// Collects `rows` rows of logits arriving as tiles [rows, <= 1024] in any order from any thread, each tile once.
// chosen_logits[r] must be row r's own logit of chosen[r] (the same bits as in its tile).
class LogProbAccumulator {
 public:
  LogProbAccumulator(Isa isa, int threads, int64_t rows, int64_t vocab, int top_k);
  void SetChosen(std::span<const int32_t> chosen, std::span<const float> chosen_logits);
  // logits [rows, tile width] of ids [tile * 1024, ...). Thread-safe across different (tile, thread) pairs.
  void AddTile(int64_t tile, MatrixView<const float> logits, int thread);
  // Call once after every tile.
  std::vector<RowLogProbs> Finish() const;

 private:
  Isa isa_;
  int64_t rows_;
  int64_t vocab_;
  int64_t tiles_;
  int top_k_;
  std::vector<int32_t> chosen_;
  std::vector<float> chosen_logits_;
  std::vector<float> tile_max_;                            // [tiles, rows]
  std::vector<float> tile_sum_;                            // [tiles, rows]
  std::vector<int64_t> above_;                             // [threads, rows]: tokens ranked before the chosen one
  std::vector<std::pair<float, int32_t>> top_;             // [threads, rows, top_k]
  std::vector<int32_t> top_count_;                         // [threads, rows]
};

}  // namespace plumbline
