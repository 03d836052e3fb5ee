// Rotary frequencies as tables that a decoder declares.
#pragma once

#include <string>

#include "plumbline/nn/decoder_config.h"

namespace plumbline {

// kRopeFrequencies and kRopeAttention from the configuration's theta and scaling; the frequencies divided by
// the checkpoint's tensor `factors` [head_dim / 2], where that is not empty.
void DeclareRope(const std::string& factors, DecoderConfig& config);

}  // namespace plumbline
