#include "plumbline/pipelines/expert_inputs.h"

#include <array>

namespace plumbline {
namespace {

constexpr std::array<std::string_view, 4> kBuffers = {"dispatch_send", "dispatch_receive", "combine_send",
                                                      "combine_receive"};

}  // namespace

InputTree<InputSpec> ExpertInputTypes(const DecoderConfig& config, const ParallelDegrees& degrees,
                                      int64_t max_rows) {
  InputTree<InputSpec> types;
  if (degrees.ep == 1) return types;
  for (int rank = 0; rank < degrees.Ranks(); ++rank) {
    const ExpertExchange::Rows rows =
        ExpertExchange::Largest(config, ShardOf(config, degrees, rank), max_rows, max_rows * degrees.dp);
    const std::array<int64_t, 4> sizes = {rows.sent, rows.received, rows.pairs,
                                          rows.home * config.experts.per_token};
    for (size_t i = 0; i < kBuffers.size(); ++i) {
      types.Add(fmt::format("rank{}/{}", rank, kBuffers[i]), {.dtype = DType::kF32,
                                                              .shape = {sizes[i], config.hidden},
                                                              .device = DeviceRef::Rank(rank),
                                                              .residence = Residence::kRankLocal});
    }
  }
  return types;
}

ExpertParallelExchange BindExpertInputs(const InputTree<InputSpec>& declared, int rank,
                                        const ExpertScratch& scratch) {
  const std::array<std::span<float>, 4> buffers = {scratch.send, scratch.received, scratch.give,
                                                   scratch.returned};
  ExpertParallelExchange exchange;
  for (size_t i = 0; i < declared.leaves.size(); ++i) {
    const auto& leaf = declared.leaves[i];
    InputTensor tensor{.dtype = leaf.value.dtype, .device = leaf.value.device};
    if (leaf.value.device == DeviceRef::Rank(rank)) {
      const std::span<float> buffer = buffers[i % kBuffers.size()];
      const int64_t hidden = leaf.value.shape[1].size;
      tensor.shape = {std::ssize(buffer) / hidden, hidden};
      tensor.data = buffer.data();
    }
    exchange.inputs.Add(leaf.path, tensor);
  }
  return exchange;
}

}  // namespace plumbline
