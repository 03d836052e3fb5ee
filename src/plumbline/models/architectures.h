// The table of decoder families. Adding one is a file beside this and a line in architectures.cc.
#pragma once

#include <span>
#include <string_view>

#include "plumbline/models/model_source.h"
#include "plumbline/nn/decoder_config.h"

namespace plumbline {

struct Architecture {
  std::string_view name;  // config.json's model_type and GGUF's general.architecture
  Result<DecoderConfig> (*configure)(const ModelSource& source);
};

std::span<const Architecture> Architectures();

// Reads and checks the configuration of any known architecture. Unknown ones are refused by name.
Result<DecoderConfig> ReadDecoderConfig(const ModelSource& source);

}  // namespace plumbline
