#include "plumbline/models/expert_config.h"

#include <algorithm>

namespace plumbline {
namespace {

// Far above any real model.
constexpr int64_t kMaxExperts = 65536;
constexpr int64_t kMaxWidth = int64_t{1} << 24;

Status CheckRange(std::string_view key, int64_t value, int64_t most, const ModelSource& source) {
  if (value >= 1 && value <= most) return {};
  return InvalidInput("{}: got {}, want 1 to {} ({})", key, value, most, source.checkpoint().path());
}

}  // namespace

Result<int64_t> ReadExpertCount(const ModelSource& source) {
  ASSIGN_OR_RETURN(const int64_t experts, source.IntOr("num_experts", 0));
  return source.IntOr("num_local_experts", experts);
}

Result<ExpertConfig> ReadExpertConfig(const ModelSource& source, int64_t intermediate) {
  ExpertConfig c;
  ASSIGN_OR_RETURN(c.count, ReadExpertCount(source));
  ASSIGN_OR_RETURN(c.per_token, source.Int("num_experts_per_tok"));
  ASSIGN_OR_RETURN(c.intermediate, source.IntOr("moe_intermediate_size", intermediate));
  RETURN_IF_ERROR(CheckRange("num_experts", c.count, kMaxExperts, source));
  RETURN_IF_ERROR(CheckRange("num_experts_per_tok", c.per_token, c.count, source));
  RETURN_IF_ERROR(CheckRange("moe_intermediate_size", c.intermediate, kMaxWidth, source));
  return c;
}

Result<std::vector<uint8_t>> ReadSparseLayers(const ModelSource& source, int64_t layers) {
  std::vector<uint8_t> sparse(layers, 0);
  ASSIGN_OR_RETURN(const int64_t step, source.IntOr("decoder_sparse_step", 1));
  RETURN_IF_ERROR(CheckRange("decoder_sparse_step", step, INT32_MAX, source));
  for (int64_t i = step - 1; i < layers; i += step) sparse[i] = 1;
  if (source.is_gguf() || !source.Has("mlp_only_layers")) return sparse;
  const nlohmann::json& dense = source.checkpoint().config()["mlp_only_layers"];
  const auto known = [&](const nlohmann::json& layer) {
    return layer.is_number_integer() && layer >= 0 && layer < layers;
  };
  if (!dense.is_array() || !std::ranges::all_of(dense, known)) {
    return InvalidInput("mlp_only_layers: got {}, want a list of layers below {} ({})", dense.dump(), layers,
                        source.checkpoint().path());
  }
  for (const nlohmann::json& layer : dense) sparse[layer.get<int64_t>()] = 0;
  return sparse;
}

}  // namespace plumbline
