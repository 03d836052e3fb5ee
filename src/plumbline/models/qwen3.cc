// Qwen3 (Yang et al. 2025): the common decoder with an RMS norm over each query and key head before rotation.
#include "plumbline/models/common_config.h"
#include "plumbline/models/families.h"

namespace plumbline {

Result<DecoderConfig> ConfigureQwen3(const ModelSource& source) {
  ASSIGN_OR_RETURN(DecoderConfig config, ReadCommonConfig(source));
  config.qk_norm = true;
  ASSIGN_OR_RETURN(const bool attention_bias, source.BoolOr("attention_bias", false));
  config.qkv_bias = attention_bias;
  config.output_bias = attention_bias;
  ASSIGN_OR_RETURN(config.window, ReadLayerWindows(source, config.layers));
  return config;
}

}  // namespace plumbline
