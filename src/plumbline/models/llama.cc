// Llama 2 and 3.x (Touvron et al. 2023; Grattafiori et al. 2024), and what shares their shape (SmolLM2): the
// common decoder, optionally with biases on every projection.
#include "plumbline/models/common_config.h"
#include "plumbline/models/expert_config.h"
#include "plumbline/models/families.h"

namespace plumbline {

Result<DecoderConfig> ConfigureLlama(const ModelSource& source) {
  // GGUF calls Mixtral by this name too.
  ASSIGN_OR_RETURN(const int64_t experts, ReadExpertCount(source));
  if (source.is_gguf() && experts > 0) return ConfigureMixtral(source);
  ASSIGN_OR_RETURN(DecoderConfig config, ReadCommonConfig(source));
  ASSIGN_OR_RETURN(const bool attention_bias, source.BoolOr("attention_bias", false));
  config.qkv_bias = attention_bias;
  config.output_bias = attention_bias;
  ASSIGN_OR_RETURN(config.mlp_bias, source.BoolOr("mlp_bias", false));
  return config;
}

}  // namespace plumbline
