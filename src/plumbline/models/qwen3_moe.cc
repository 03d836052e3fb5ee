// Qwen3-MoE (Yang et al. 2025): Qwen3 with a choice of experts in some layers or all; whether their weights
// sum to 1 is configured. A sliding window is every layer's.
#include "plumbline/models/common_config.h"
#include "plumbline/models/expert_config.h"
#include "plumbline/models/families.h"

namespace plumbline {

Result<DecoderConfig> ConfigureQwen3Moe(const ModelSource& source) {
  ASSIGN_OR_RETURN(DecoderConfig config, ConfigureQwen3(source));
  ASSIGN_OR_RETURN(const bool use_window, source.BoolOr("use_sliding_window", false));
  if (use_window && (source.Has("sliding_window") || !source.Mentions("sliding_window"))) {
    ASSIGN_OR_RETURN(const int64_t window, source.IntOr("sliding_window", 4096));
    config.window.assign(config.layers, static_cast<int32_t>(window));
  }
  ASSIGN_OR_RETURN(config.experts, ReadExpertConfig(source, config.intermediate));
  // GGUF files do not say; llama.cpp makes them sum to 1.
  ASSIGN_OR_RETURN(config.experts.normalize, source.BoolOr("norm_topk_prob", source.is_gguf()));
  ASSIGN_OR_RETURN(config.sparse, ReadSparseLayers(source, config.layers));
  return config;
}

}  // namespace plumbline
