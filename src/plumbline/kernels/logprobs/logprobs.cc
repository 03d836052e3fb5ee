#include "plumbline/kernels/logprobs/logprobs.h"

#include <array>
#include <limits>
#include <utility>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/logprobs/logprob_row.h"

namespace plumbline {
namespace {

constexpr int kMaxLevels = 8;

using OneTokenFn = void (*)(Isa, int64_t, const LogProbTensors&, const LogProbInputs&);

template <size_t... kLevels>
constexpr std::array<OneTokenFn, sizeof...(kLevels)> OneTokenTable(std::index_sequence<kLevels...>) {
  return {&compute_log_probabilities_1tok<static_cast<int>(kLevels)>...};
}

}  // namespace

template <int levels>
void compute_log_probabilities_1tok(Isa isa, int64_t output_token_index, const LogProbTensors& out,
                                    const LogProbInputs& in) {
  const ScopedFloatEnv float_env;
  const OutputPosition position = PositionOf(in, output_token_index);
  const std::span<const float> x(in.logits.Row(position.logits_row), static_cast<size_t>(in.logits.cols));
  std::array<TopEntry, (size_t{1} << levels) - 1> top;
  const float norm = RowNormAndTop(LogProbKernelsFor(isa), x, top);

  float* lp_logits = out.lp_logits.Row(output_token_index);
  uint32_t* lp_tokens = out.lp_tokens.Row(output_token_index);
  for (size_t slot = 0; slot < top.size(); ++slot) {
    const bool used = top[slot].id != kEmptyFiniteId;
    lp_tokens[slot] = used ? static_cast<uint32_t>(top[slot].id) : static_cast<uint32_t>(in.logits.cols);
    lp_logits[slot] = used ? LogProb(top[slot].value, norm) : -std::numeric_limits<float>::infinity();
  }
  lp_tokens[top.size()] = position.token;
  lp_logits[top.size()] = LogProb(x[position.token], norm);
}

template void compute_log_probabilities_1tok<0>(Isa, int64_t, const LogProbTensors&, const LogProbInputs&);
template void compute_log_probabilities_1tok<1>(Isa, int64_t, const LogProbTensors&, const LogProbInputs&);
template void compute_log_probabilities_1tok<2>(Isa, int64_t, const LogProbTensors&, const LogProbInputs&);
template void compute_log_probabilities_1tok<3>(Isa, int64_t, const LogProbTensors&, const LogProbInputs&);
template void compute_log_probabilities_1tok<4>(Isa, int64_t, const LogProbTensors&, const LogProbInputs&);
template void compute_log_probabilities_1tok<5>(Isa, int64_t, const LogProbTensors&, const LogProbInputs&);
template void compute_log_probabilities_1tok<6>(Isa, int64_t, const LogProbTensors&, const LogProbInputs&);
template void compute_log_probabilities_1tok<7>(Isa, int64_t, const LogProbTensors&, const LogProbInputs&);
template void compute_log_probabilities_1tok<8>(Isa, int64_t, const LogProbTensors&, const LogProbInputs&);

Status ComputeLogProbabilities(const KernelContext& context, int levels, const LogProbTensors& out,
                               const LogProbInputs& in) {
  RETURN_IF_ERROR(CheckLogProbInputs(out, in, levels));
  static constexpr auto kOneToken = OneTokenTable(std::make_index_sequence<kMaxLevels + 1>());
  const OneTokenFn one_token = kOneToken[static_cast<size_t>(levels)];
  context.pool.ParallelFor(out.lp_logits.rows,
                           [&](int64_t index, int) { one_token(context.isa, index, out, in); });
  return {};
}

}  // namespace plumbline
