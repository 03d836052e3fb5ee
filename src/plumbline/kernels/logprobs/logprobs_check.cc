#include <limits>
#include <string_view>

#include "plumbline/kernels/logprobs/logprob_row.h"

namespace plumbline {
namespace {

constexpr int64_t kMaxVocab = std::numeric_limits<int32_t>::max();

template <typename T>
Status CheckOutput(std::string_view name, const MatrixView<T>& view, int64_t width) {
  if (view.cols != width) {
    return InvalidInput("{} columns: got {}, want {} (2^levels)", name, view.cols, width);
  }
  if (view.stride < view.cols) {
    return InvalidInput("{} stride: got {}, want at least its {} columns", name, view.stride, view.cols);
  }
  return {};
}

Status CheckTokens(std::string_view name, std::span<const uint32_t> tokens, int64_t vocab) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (int64_t{tokens[i]} >= vocab) {
      return InvalidInput("{}[{}]: got token id {}, want less than {} (columns of logits)", name, i,
                          tokens[i], vocab);
    }
  }
  return {};
}

// Every output reads the logits of one input position, so a sequence has at least as many of both.
Status CheckSequence(const LogProbInputs& in, size_t b) {
  const uint32_t outputs = in.lp_output_offsets[b + 1] - in.lp_output_offsets[b];
  const uint32_t rows = in.logit_row_offsets[b + 1] - in.logit_row_offsets[b];
  const uint32_t tokens = in.token_row_offsets[b + 1] - in.token_row_offsets[b];
  if (outputs > rows) {
    return InvalidInput("logit_row_offsets of sequence {}: got {} rows, want at least {} (its outputs)", b,
                        rows, outputs);
  }
  if (outputs > tokens) {
    return InvalidInput("token_row_offsets of sequence {}: got {} tokens, want at least {} (its outputs)", b,
                        tokens, outputs);
  }
  return {};
}

}  // namespace

Status CheckLogits(std::string_view name, const MatrixView<const float>& logits) {
  if (logits.rows < 0) return InvalidInput("{} rows: got {}, want at least 0", name, logits.rows);
  if (logits.cols < 1 || logits.cols > kMaxVocab) {
    return InvalidInput("{} columns: got {}, want 1 to {}", name, logits.cols, kMaxVocab);
  }
  if (logits.stride < logits.cols) {
    return InvalidInput("{} stride: got {}, want at least its {} columns", name, logits.stride, logits.cols);
  }
  return {};
}

Status CheckOffsets(std::string_view name, std::span<const uint32_t> offsets, size_t sequences, int64_t limit,
                    std::string_view what) {
  if (offsets.size() != sequences + 1) {
    return InvalidInput("{} length: got {}, want {} (one more than sampled_tokens)", name, offsets.size(),
                        sequences + 1);
  }
  if (offsets[0] != 0) return InvalidInput("{}[0]: got {}, want 0", name, offsets[0]);
  for (size_t b = 0; b < sequences; ++b) {
    if (offsets[b + 1] < offsets[b]) {
      return InvalidInput("{}[{}]: got {}, want at least {} (the offset before it)", name, b + 1,
                          offsets[b + 1], offsets[b]);
    }
  }
  if (int64_t{offsets.back()} > limit) {
    return InvalidInput("{}[{}]: got {}, want at most {} ({})", name, sequences, offsets.back(), limit, what);
  }
  return {};
}

Status CheckRaggedInputs(const LogProbInputs& in, int64_t outputs) {
  const size_t sequences = in.sampled_tokens.size();
  const int64_t tokens = static_cast<int64_t>(in.tokens.size());
  RETURN_IF_ERROR(CheckLogits("logits", in.logits));
  RETURN_IF_ERROR(
      CheckOffsets("logit_row_offsets", in.logit_row_offsets, sequences, in.logits.rows, "rows of logits"));
  RETURN_IF_ERROR(
      CheckOffsets("token_row_offsets", in.token_row_offsets, sequences, tokens, "length of tokens"));
  RETURN_IF_ERROR(
      CheckOffsets("lp_output_offsets", in.lp_output_offsets, sequences, outputs, "rows of lp_logits"));
  if (int64_t{in.lp_output_offsets.back()} != outputs) {
    return InvalidInput("lp_logits rows: got {}, want {} (the last of lp_output_offsets)", outputs,
                        in.lp_output_offsets.back());
  }
  for (size_t b = 0; b < sequences; ++b) RETURN_IF_ERROR(CheckSequence(in, b));
  RETURN_IF_ERROR(CheckTokens("tokens", in.tokens.first(in.token_row_offsets.back()), in.logits.cols));
  return CheckTokens("sampled_tokens", in.sampled_tokens, in.logits.cols);
}

Status CheckLogProbInputs(const LogProbTensors& out, const LogProbInputs& in, int levels) {
  if (levels < 0 || levels > 8) return InvalidInput("levels: got {}, want 0 to 8", levels);
  const int64_t width = int64_t{1} << levels;
  RETURN_IF_ERROR(CheckOutput("lp_logits", out.lp_logits, width));
  RETURN_IF_ERROR(CheckOutput("lp_tokens", out.lp_tokens, width));
  if (out.lp_tokens.rows != out.lp_logits.rows) {
    return InvalidInput("lp_tokens rows: got {}, want {} (rows of lp_logits)", out.lp_tokens.rows,
                        out.lp_logits.rows);
  }
  return CheckRaggedInputs(in, out.lp_logits.rows);
}

}  // namespace plumbline
