// Mixtral (Jiang et al. 2024): the common decoder with a choice of experts in every layer, the weights of the
// chosen ones made to sum to 1.
#include "plumbline/models/common_config.h"
#include "plumbline/models/expert_config.h"
#include "plumbline/models/families.h"

namespace plumbline {

Result<DecoderConfig> ConfigureMixtral(const ModelSource& source) {
  ASSIGN_OR_RETURN(DecoderConfig config, ReadCommonConfig(source));
  // The reference's default.
  if (!source.is_gguf() && !source.Has("rope_theta") && !source.Has("rope_parameters.rope_theta"))
    config.rope_theta = 1e6;
  ASSIGN_OR_RETURN(const int64_t window, source.IntOr("sliding_window", 0));
  if (window < 0 || window > INT32_MAX) {
    return InvalidInput("sliding_window: got {}, want at least 0 ({})", window, source.checkpoint().path());
  }
  config.window.assign(config.layers, static_cast<int32_t>(window));
  ASSIGN_OR_RETURN(config.experts, ReadExpertConfig(source, config.intermediate));
  config.sparse.assign(config.layers, 1);
  return config;
}

}  // namespace plumbline
