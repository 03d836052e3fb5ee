// What a decoder is made of, read from a checkpoint's configuration alone (never from which tensors exist).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/kernels/activation/activation.h"
#include "plumbline/kernels/rotary/rotary.h"
#include "plumbline/nn/decoder_declaration.h"

namespace plumbline {

// Sparse layers, whose feed-forward is a choice of experts.
struct ExpertConfig {
  int64_t count = 0;  // 0: every layer is dense
  int64_t per_token = 0;
  int64_t intermediate = 0;  // of one expert
  bool normalize = true;     // the weights of a row's experts sum to 1
};

// Constants that every family declares (models/rope_constants.h).
inline constexpr const char* kRopeFrequencies = "rope/inv_freq";        // [head_dim / 2]
inline constexpr const char* kRopeAttention = "rope/attention_factor";  // [1], multiplies cos and sin

struct DecoderConfig {
  std::string architecture;  // the line of the table in models/architectures.cc
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate = 0;  // of dense layers
  int64_t vocab = 0;
  int64_t max_positions = 0;  // the context: no sequence may be longer

  float norm_eps = 1e-5f;
  Activation activation = Activation::kSilu;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;

  bool tied_head = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of o_proj
  bool mlp_bias = false;
  bool qk_norm = false;

  std::vector<int32_t> window;  // [layers] keys a row may see, itself included; 0: no limit

  ExpertConfig experts;
  std::vector<uint8_t> sparse;  // [layers] whether a layer is sparse; empty: none is

  DecoderDeclaration declares;  // its inputs

  int64_t QueryWidth() const { return heads * head_dim; }
  int64_t KvWidth() const { return kv_heads * head_dim; }
  bool Sparse(int64_t layer) const { return !sparse.empty() && sparse[layer] != 0; }
  bool AnyDense() const { return sparse.empty() || std::ranges::find(sparse, 0) != sparse.end(); }
};

}  // namespace plumbline
