// The part of a configuration that all families share, read and range-checked.
#pragma once

#include <cstdint>
#include <vector>

#include "plumbline/models/model_source.h"
#include "plumbline/nn/decoder_config.h"

namespace plumbline {

// Sizes, norm, activation, rotary positions and scaling, tied head. `window` is all zeros.
Result<DecoderConfig> ReadCommonConfig(const ModelSource& source);

// Qwen2's and Qwen3's per-layer windows: use_sliding_window, then layer_types or max_window_layers.
Result<std::vector<int32_t>> ReadLayerWindows(const ModelSource& source, int64_t layers);

}  // namespace plumbline
