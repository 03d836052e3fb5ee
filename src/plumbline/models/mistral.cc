// Mistral 7B (Jiang et al. 2023): the common decoder with one sliding window in every layer.
#include "plumbline/models/common_config.h"
#include "plumbline/models/families.h"

namespace plumbline {

Result<DecoderConfig> ConfigureMistral(const ModelSource& source) {
  ASSIGN_OR_RETURN(DecoderConfig config, ReadCommonConfig(source));
  // A configuration that says null has no window; one that says nothing has the reference's default.
  const int64_t otherwise = source.Mentions("sliding_window") ? 0 : 4096;
  ASSIGN_OR_RETURN(const int64_t window, source.IntOr("sliding_window", otherwise));
  if (window < 0 || window > INT32_MAX) {
    return InvalidInput("sliding_window: got {}, want at least 0 ({})", window, source.checkpoint().path());
  }
  config.window.assign(config.layers, static_cast<int32_t>(window));
  return config;
}

}  // namespace plumbline
