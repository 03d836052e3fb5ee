// The configuration of each family: what its paper or reference adds to the common decoder. One .cc file
// each.
#pragma once

#include "plumbline/models/model_source.h"
#include "plumbline/nn/decoder_config.h"

namespace plumbline {

Result<DecoderConfig> ConfigureLlama(const ModelSource& source);
Result<DecoderConfig> ConfigureMistral(const ModelSource& source);
Result<DecoderConfig> ConfigureMixtral(const ModelSource& source);
Result<DecoderConfig> ConfigureQwen2(const ModelSource& source);
Result<DecoderConfig> ConfigureQwen3(const ModelSource& source);
Result<DecoderConfig> ConfigureQwen3Moe(const ModelSource& source);

}  // namespace plumbline
