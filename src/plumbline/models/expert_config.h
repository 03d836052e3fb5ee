// The part of a configuration that families with experts share.
#pragma once

#include "plumbline/models/model_source.h"
#include "plumbline/nn/decoder_config.h"

namespace plumbline {

// How many experts a layer has: num_local_experts or num_experts; 0 where neither is there.
Result<int64_t> ReadExpertCount(const ModelSource& source);

// Counts and sizes, range-checked. An expert's width is moe_intermediate_size, or `intermediate` where the
// configuration has none. `normalize` is true.
Result<ExpertConfig> ReadExpertConfig(const ModelSource& source, int64_t intermediate);

// Which layers are sparse (Qwen's MoE): every decoder_sparse_step-th, but none of mlp_only_layers.
Result<std::vector<uint8_t>> ReadSparseLayers(const ModelSource& source, int64_t layers);

}  // namespace plumbline
