// From the last layer's hidden states to logits and requested hidden states (the single-device form of
// distributed_logits_postprocess, seed 000; decoder contract, sections 1 and 2).
//
//   rows      last token of each sequence; the last n of each (VARIABLE); or every row (ALL)
//   logits    float32(head(norm(rows))), then / logits_scaling, then tanh(x / softcap) * softcap
//
// Each needed row is projected once: the same bits wherever it appears.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "plumbline/nn/lm_head.h"
#include "plumbline/tensor/tensor.h"

namespace plumbline {

enum class ReturnLogits : uint8_t { kLastToken, kVariable, kAll };
enum class ReturnHiddenStates : uint8_t {
  kNone,
  kLast,
  kLastPerDevice,
  kAllNormalized,
  kAll,
  kSelectedLayers
};

// "none", "last", "last_per_device", "all", "all_normalized", "selected_layers".
std::string_view Name(ReturnHiddenStates mode);
std::optional<ReturnHiddenStates> ParseReturnHiddenStates(std::string_view name);

// Rows whose tiles are in flight at once in the streaming form: enough to amortise reading the head, few
// enough that a thread's tile [kStreamRows, 1024] stays in its second-level cache.
inline constexpr int64_t kStreamRows = 128;

// Takes the selected rows' logits tile by tile instead of a [rows, vocab] tensor, in blocks of consecutive
// rows: scoring never holds more than a block's tiles.
class LogitsSink {
 public:
  virtual ~LogitsSink() = default;
  // Rows [row_begin, row_end) of the selection come next. Returns one id per row whose own logit is wanted
  // first.
  virtual std::span<const int32_t> BeginRows(int64_t row_begin, int64_t row_end, int64_t vocab) = 0;
  virtual void TakeChosen(std::span<const float> logits) = 0;  // [row_end - row_begin]
  virtual void TakeTile(int64_t tile, MatrixView<const float> logits, int thread) = 0;
  virtual void EndRows() = 0;
};

struct LogitsPostprocessInputs {
  MatrixView<const float> h;                    // [T, hidden], before the final norm
  std::span<const uint32_t> input_row_offsets;  // [B + 1]
  int64_t return_n_logits = 1;                  // VARIABLE only: 1 <= n <= every sequence's length
  const LmHead* lm_head = nullptr;
  const FinalNorm* norm = nullptr;  // null: h goes to the head as it is
  ReturnLogits return_logits = ReturnLogits::kLastToken;
  ReturnHiddenStates return_hidden_states = ReturnHiddenStates::kNone;
  float logits_scaling = 1.0f;  // a divisor
  std::optional<float> logit_softcapping;
  int64_t unpadded_vocab = 0;                                      // ids at or above it become -inf; 0: none
  std::span<const MatrixView<const float>> capture_hidden_states;  // SELECTED_LAYERS: [T, hidden] a layer
  LogitsSink* sink = nullptr;  // streams the selection: last_logits, logits and offsets then stay absent
};

struct LogitsPostprocessOutputs {
  std::optional<Tensor> last_logits;  // [B, vocab] f32
  std::optional<Tensor> logits;       // VARIABLE [B * n, vocab], ALL [T, vocab] f32
  std::optional<Tensor> offsets;      // [B + 1]: VARIABLE i64, ALL u32
  std::vector<Tensor> hidden_states;  // per mode, as section 2.3 lists them (one device)

  // The positional tuple: (last_logits, [logits, offsets], [hidden states]).
  std::vector<const Tensor*> Tuple() const;
};

// Refuses, before anything is computed: offsets that do not cover h, zero-length sequences, n out of range,
// scaling or cap of zero, a missing head, norm (ALL_NORMALIZED) or capture list (SELECTED_LAYERS).
Result<LogitsPostprocessOutputs> logits_postprocess(const KernelContext& context,
                                                    const LogitsPostprocessInputs& inputs);

}  // namespace plumbline
