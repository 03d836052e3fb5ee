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

// Where outputs, logits rows and top entries of each sequence begin.
void LayOut(const RaggedLogProbRequest& request, RaggedLogProbs& out) {
  const size_t sequences = request.sampled_tokens.size();
  out.offsets.assign(1, 0);
  out.top_offsets.assign(1, 0);
  for (size_t b = 0; b < sequences; ++b) {
    const uint32_t length = request.input_row_offsets[b + 1] - request.input_row_offsets[b];
    const uint32_t wanted = request.batch_top_n[b] == 0 ? 0 : request.batch_echo[b] != 0 ? length : 1;
    out.offsets.push_back(out.offsets.back() + wanted);
    const int64_t room = std::min<int64_t>(request.batch_top_n[b], request.next_token_logits.cols);
    for (uint32_t i = 0; i < wanted; ++i) out.top_offsets.push_back(out.top_offsets.back() + room);
  }
  if (request.logits) {
    out.logit_rows.assign(request.input_row_offsets.begin(), request.input_row_offsets.end());
  } else {
    out.logit_rows.resize(sequences + 1);
    std::iota(out.logit_rows.begin(), out.logit_rows.end(), 0u);
  }
  const int64_t outputs = out.offsets.back();
  out.logprobs.resize(outputs);
  out.tokens.resize(outputs);
  out.top_counts.resize(outputs);
  out.top.resize(out.top_offsets.back());
}

void ComputeOutput(const LogProbKernels& kernels, const LogProbInputs& in, int64_t output,
                   RaggedLogProbs& out) {
  const OutputPosition position = PositionOf(in, output);
  const std::span<const float> x(in.logits.Row(position.logits_row), static_cast<size_t>(in.logits.cols));
  const int64_t begin = out.top_offsets[output];
  const std::span<TopEntry> top(out.top.data() + begin,
                                static_cast<size_t>(out.top_offsets[output + 1] - begin));
  const float norm = RowNormAndTop(kernels, x, top);
  out.logprobs[output] = LogProb(x[position.token], norm);
  out.tokens[output] = position.token;
  int32_t count = 0;
  for (TopEntry& entry : top) {
    if (entry.id == kEmptyFiniteId) break;
    entry.value = LogProb(entry.value, norm);
    ++count;
  }
  out.top_counts[output] = count;
}

// Output `output` as a map, the position's token appended where it is not among the best.
std::vector<std::pair<uint32_t, float>> MapOf(const RaggedLogProbs& flat, int64_t output) {
  std::vector<std::pair<uint32_t, float>> map;
  bool found = false;
  for (int64_t i = flat.top_offsets[output]; i < flat.top_offsets[output] + flat.top_counts[output]; ++i) {
    map.emplace_back(static_cast<uint32_t>(flat.top[i].id), flat.top[i].value);
    found = found || map.back().first == flat.tokens[output];
  }
  if (!found) map.emplace_back(flat.tokens[output], flat.logprobs[output]);
  return map;
}

}  // namespace

Status compute_log_probabilities_ragged(const KernelContext& context, const RaggedLogProbRequest& request,
                                        RaggedLogProbs& out) {
  RETURN_IF_ERROR(CheckRequest(request));
  LayOut(request, out);
  const LogProbInputs in = {.logits = request.logits ? *request.logits : request.next_token_logits,
                            .tokens = request.tokens,
                            .sampled_tokens = request.sampled_tokens,
                            .logit_row_offsets = out.logit_rows,
                            .token_row_offsets = request.input_row_offsets,
                            .lp_output_offsets = out.offsets};
  const int64_t outputs = out.offsets.back();
  RETURN_IF_ERROR(CheckRaggedInputs(in, outputs));
  const LogProbKernels& kernels = LogProbKernelsFor(context.isa);
  context.pool.ParallelFor(outputs, [&](int64_t output, int) { ComputeOutput(kernels, in, output, out); });
  return {};
}

Result<std::vector<std::optional<LogProbabilities>>> compute_log_probabilities_ragged(
    const KernelContext& context, const RaggedLogProbRequest& request) {
  RaggedLogProbs flat;
  RETURN_IF_ERROR(compute_log_probabilities_ragged(context, request, flat));
  std::vector<std::optional<LogProbabilities>> results(request.sampled_tokens.size());
  for (size_t b = 0; b < results.size(); ++b) {
    if (request.batch_top_n[b] == 0) continue;
    LogProbabilities& result = results[b].emplace();
    for (uint32_t output = flat.offsets[b]; output < flat.offsets[b + 1]; ++output) {
      result.token_log_probabilities.push_back(flat.logprobs[output]);
      result.sampled_token_ids.push_back(flat.tokens[output]);
      result.top_log_probabilities.push_back(MapOf(flat, output));
    }
  }
  return results;
}

}  // namespace plumbline
