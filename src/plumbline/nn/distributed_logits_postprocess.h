// From the last layer's hidden states to logits and requested hidden states (seed 000; decoder contract,
// sections 1 and 2). Every rank of the last stage calls it with its own rows ("device" there is a rank here):
//
//   rows      last token of each sequence; the last n of each (VARIABLE); or every row (ALL)
//   logits    float32(head(norm(rows))), then / logits_scaling, then tanh(x / softcap) * softcap
//
// The head's ids are cut over the ranks of the stage and gathered. Tensor-parallel form: all ranks have the
// same rows. Data-parallel form: replicas have rows of their own, which are gathered in replica order first,
// so that logits and offsets are those of the whole batch on every rank. Each needed row is projected once:
// the same bits wherever it appears, on any number of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "plumbline/nn/lm_head.h"
#include "plumbline/nn/logits_sink.h"
#include "plumbline/nn/rank_context.h"
#include "plumbline/tensor/grow_buffer.h"

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

struct LogitsPostprocessInputs {
  MatrixView<const float> h;  // [T of this rank's replica, hidden], before the final norm
  // [B + 1], the whole batch's. data_parallel_splits [replicas + 1]: the data-parallel form, in which replica
  // i has sequences [splits[i], splits[i + 1]); empty: the tensor-parallel form.
  std::span<const uint32_t> input_row_offsets;
  std::span<const int64_t> data_parallel_splits;
  int64_t return_n_logits = 1;  // VARIABLE only: 1 <= n <= every sequence's length
  const LmHead* lm_head = nullptr;
  const FinalNorm* norm = nullptr;  // null: h goes to the head as it is
  ReturnLogits return_logits = ReturnLogits::kLastToken;
  ReturnHiddenStates return_hidden_states = ReturnHiddenStates::kNone;
  // The ranks whose hidden states the modes for several devices list, in order; null: this rank alone.
  Communicator* devices = nullptr;
  float logits_scaling = 1.0f;  // a divisor
  std::optional<float> logit_softcapping;
  int64_t unpadded_vocab = 0;                                      // ids at or above it become -inf; 0: none
  std::span<const MatrixView<const float>> capture_hidden_states;  // SELECTED_LAYERS: [T, hidden] a layer
  bool project = true;                                             // false: hidden states only, no logits
  LogitsSink* sink = nullptr;  // streams the selection: last_logits, logits and offsets then stay absent
};

// Views of the workspace, valid until it is used again.
struct LogitsPostprocessOutputs {
  std::optional<MatrixView<const float>> last_logits;        // [B, vocab]
  std::optional<MatrixView<const float>> logits;             // VARIABLE [B * n, vocab], ALL [T, vocab]
  std::optional<std::span<const int64_t>> variable_offsets;  // [B + 1]
  std::optional<std::span<const uint32_t>> all_offsets;      // [B + 1]
  std::span<const MatrixView<const float>> hidden_states;    // per mode, as section 2.3 lists them

  // The positional tuple: (last_logits, [logits, offsets], [hidden states]).
  struct Element {
    DType dtype;
    std::vector<int64_t> shape;
    const void* data;
  };
  std::vector<Element> Tuple() const;
};

// Memory of one rank, reused from step to step: grows to the largest size it has held.
struct LogitsWorkspace {
  std::vector<int64_t> selected;  // rows of h
  GrowBuffer own_rows, rows;      // [selected of this replica / of all, hidden]
  PackedActivations packed;
  LmHeadScratch head;
  std::vector<float> chosen;                               // [kStreamRows]
  GrowBuffer shard_logits, gathered, logits, last_logits;  // this rank's columns; everyone's; rows of all ids
  std::vector<int64_t> variable_offsets;
  GrowBuffer hidden_send, hidden_states;
  std::vector<MatrixView<const float>> hidden_views;
};

// Refuses, before anything is computed: offsets that do not cover h, splits that do not fit the replicas,
// zero-length sequences, n out of range, scaling or cap of zero, a missing head, norm (ALL_NORMALIZED) or
// capture list (SELECTED_LAYERS).
Result<LogitsPostprocessOutputs> distributed_logits_postprocess(const RankContext& rank,
                                                                const LogitsPostprocessInputs& inputs,
                                                                LogitsWorkspace& workspace);

}  // namespace plumbline
