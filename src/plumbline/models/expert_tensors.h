// Where the experts of a sparse layer lie in a checkpoint. One of
//
//   model.layers.L.mlp.experts.E.{gate,up,down}_proj.weight          [n, k]           (Hugging Face)
//   model.layers.L.block_sparse_moe.experts.E.{w1,w3,w2}.weight      [n, k]           (Hugging Face, Mixtral)
//   model.layers.L.mlp.experts.{gate_up_proj,down_proj}              [experts, n, k]  (transformers 5, fused)
//   blk.L.ffn_{gate,up,down}_exps.weight                             [experts, n, k]  (GGUF)
//
// and the router, [experts, hidden], as mlp.gate, block_sparse_moe.gate or ffn_gate_inp.
#pragma once

#include <string>
#include <vector>

#include "plumbline/models/model_source.h"
#include "plumbline/nn/decoder_config.h"

namespace plumbline {

struct ExpertTensors {
  std::string router;  // its name without ".weight"
  std::vector<RawTensor> gate, up,
      down;                        // [experts] gate, up [intermediate, hidden]; down [hidden, intermediate]
  std::vector<std::string> names;  // of the tensors they lie in, in Hugging Face's spelling

  // All that the layer should have; a tensor that is not there, or has another shape, is refused.
  static Result<ExpertTensors> Find(const ModelSource& source, const DecoderConfig& config, int64_t layer);
};

}  // namespace plumbline
