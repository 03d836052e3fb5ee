// Qwen2 and Qwen2.5 (Yang et al. 2024): the common decoder with biases on q, k and v, and optional sliding
// windows in the upper layers.
#include "plumbline/models/common_config.h"
#include "plumbline/models/families.h"

namespace plumbline {

Result<DecoderConfig> ConfigureQwen2(const ModelSource& source) {
  ASSIGN_OR_RETURN(DecoderConfig config, ReadCommonConfig(source));
  config.qkv_bias = true;
  ASSIGN_OR_RETURN(config.window, ReadLayerWindows(source, config.layers));
  return config;
}

}  // namespace plumbline
