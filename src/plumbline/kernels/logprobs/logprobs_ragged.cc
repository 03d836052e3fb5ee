#include <algorithm>
#include <numeric>

#include "plumbline/kernels/logprobs/logprob_row.h"

namespace plumbline {
namespace {

Status CheckRequestLogits(const RaggedLogProbRequest& request) {
  const int64_t sequences = static_cast<int64_t>(request.sampled_tokens.size());
  const int64_t tokens = static_cast<int64_t>(request.tokens.size());
  RETURN_IF_ERROR(CheckLogits("next_token_logits", request.next_token_logits));
  if (request.next_token_logits.rows != sequences) {
    return InvalidInput("next_token_logits rows: got {}, want {} (length of sampled_tokens)",
                        request.next_token_logits.rows, sequences);
  }
  if (!request.logits) return {};
  RETURN_IF_ERROR(CheckLogits("logits", *request.logits));
  if (request.logits->rows != tokens) {
    return InvalidInput("logits rows: got {}, want {} (length of tokens)", request.logits->rows, tokens);
  }
  if (request.logits->cols != request.next_token_logits.cols) {
    return InvalidInput("logits columns: got {}, want {} (columns of next_token_logits)",
                        request.logits->cols, request.next_token_logits.cols);
  }
  return {};
}

Status CheckRequest(const RaggedLogProbRequest& request) {
  const size_t sequences = request.sampled_tokens.size();
  if (request.batch_top_n.size() != sequences) {
    return InvalidInput("batch_top_n length: got {}, want {} (length of sampled_tokens)",
                        request.batch_top_n.size(), sequences);
  }
  if (request.batch_echo.size() != sequences) {
    return InvalidInput("batch_echo length: got {}, want {} (length of sampled_tokens)",
                        request.batch_echo.size(), sequences);
  }
  const int64_t tokens = static_cast<int64_t>(request.tokens.size());
  RETURN_IF_ERROR(
      CheckOffsets("input_row_offsets", request.input_row_offsets, sequences, tokens, "length of tokens"));
  if (int64_t{request.input_row_offsets.back()} != tokens) {
    return InvalidInput("input_row_offsets[{}]: got {}, want {} (length of tokens)", sequences,
                        request.input_row_offsets.back(), tokens);
  }
  for (size_t b = 0; b < sequences; ++b) {
    if (request.batch_top_n[b] < 0) {
      return InvalidInput("batch_top_n[{}]: got {}, want at least 0", b, request.batch_top_n[b]);
    }
    if (request.batch_echo[b] != 0 && !request.logits) {
      return InvalidInput("logits: got none, want those of every token (batch_echo[{}] is set)", b);
    }
    if (request.batch_top_n[b] != 0 && request.input_row_offsets[b + 1] == request.input_row_offsets[b]) {
      return InvalidInput(
          "input_row_offsets of sequence {}: got 0 tokens, want at least 1 (batch_top_n[{}] is {})", b, b,
          request.batch_top_n[b]);
    }
  }
  return CheckRequestLogits(request);
}

// Where outputs and logits rows of each sequence begin.
struct Layout {
  std::vector<uint32_t> outputs;
  std::vector<uint32_t> logit_rows;
};

Layout LayOut(const RaggedLogProbRequest& request) {
  const size_t sequences = request.sampled_tokens.size();
  Layout layout;
  layout.outputs.assign(1, 0);
  for (size_t b = 0; b < sequences; ++b) {
    const uint32_t length = request.input_row_offsets[b + 1] - request.input_row_offsets[b];
    const uint32_t wanted = request.batch_top_n[b] == 0 ? 0 : request.batch_echo[b] != 0 ? length : 1;
    layout.outputs.push_back(layout.outputs.back() + wanted);
  }
  if (request.logits) {
    layout.logit_rows.assign(request.input_row_offsets.begin(), request.input_row_offsets.end());
  } else {
    layout.logit_rows.resize(sequences + 1);
    std::iota(layout.logit_rows.begin(), layout.logit_rows.end(), 0u);
  }
  return layout;
}

void ComputeOutput(const LogProbKernels& kernels, const LogProbInputs& in, int64_t output, int32_t top_n,
                   const OutputPosition& position, LogProbabilities* result) {
  const int64_t slot = output - int64_t{in.lp_output_offsets[position.sequence]};
  const std::span<const float> x(in.logits.Row(position.logits_row), static_cast<size_t>(in.logits.cols));
  std::vector<TopEntry> top(std::min(static_cast<size_t>(top_n), x.size()));
  const float norm = RowNormAndTop(kernels, x, top);
  const float chosen = LogProb(x[position.token], norm);
  result->token_log_probabilities[slot] = chosen;
  result->sampled_token_ids[slot] = position.token;

  auto& map = result->top_log_probabilities[slot];
  bool found = false;
  for (const TopEntry& entry : top) {
    if (entry.id == kEmptyFiniteId) break;
    map.emplace_back(static_cast<uint32_t>(entry.id), LogProb(entry.value, norm));
    found = found || map.back().first == position.token;
  }
  if (!found) map.emplace_back(position.token, chosen);
}

}  // namespace

Result<std::vector<std::optional<LogProbabilities>>> compute_log_probabilities_ragged(
    const KernelContext& context, const RaggedLogProbRequest& request) {
  RETURN_IF_ERROR(CheckRequest(request));
  const Layout layout = LayOut(request);
  const LogProbInputs in = {.logits = request.logits ? *request.logits : request.next_token_logits,
                            .tokens = request.tokens,
                            .sampled_tokens = request.sampled_tokens,
                            .logit_row_offsets = layout.logit_rows,
                            .token_row_offsets = request.input_row_offsets,
                            .lp_output_offsets = layout.outputs};
  const int64_t outputs = layout.outputs.back();
  RETURN_IF_ERROR(CheckRaggedInputs(in, outputs));

  const size_t sequences = request.sampled_tokens.size();
  std::vector<std::optional<LogProbabilities>> results(sequences);
  for (size_t b = 0; b < sequences; ++b) {
    if (request.batch_top_n[b] == 0) continue;
    const size_t count = layout.outputs[b + 1] - layout.outputs[b];
    results[b].emplace();
    results[b]->token_log_probabilities.resize(count);
    results[b]->top_log_probabilities.resize(count);
    results[b]->sampled_token_ids.resize(count);
  }
  const LogProbKernels& kernels = LogProbKernelsFor(context.isa);
  context.pool.ParallelFor(outputs, [&](int64_t output, int) {
    const OutputPosition position = PositionOf(in, output);
    ComputeOutput(kernels, in, output, request.batch_top_n[position.sequence], position,
                  &*results[position.sequence]);
  });
  return results;
}

}  // namespace plumbline
