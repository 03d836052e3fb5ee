#include "plumbline/models/common_config.h"

#include <string>

#include "plumbline/models/rope_constants.h"

namespace plumbline {
namespace {

// Bounds that any real model is far inside; a corrupt file is not.
constexpr int64_t kMaxDimension = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeadDim = 1024;

Status CheckRange(std::string_view key, int64_t value, int64_t most, const ModelSource& source) {
  if (value >= 1 && value <= most) return {};
  return InvalidInput("{}: got {}, want 1 to {} ({})", key, value, most, source.checkpoint().path());
}

Status ReadSizes(const ModelSource& source, DecoderConfig& c) {
  ASSIGN_OR_RETURN(c.hidden, source.Int("hidden_size"));
  ASSIGN_OR_RETURN(c.layers, source.Int("num_hidden_layers"));
  ASSIGN_OR_RETURN(c.heads, source.Int("num_attention_heads"));
  ASSIGN_OR_RETURN(c.kv_heads, source.IntOr("num_key_value_heads", c.heads));
  ASSIGN_OR_RETURN(c.intermediate, source.Int("intermediate_size"));
  ASSIGN_OR_RETURN(c.max_positions, source.Int("max_position_embeddings"));
  RETURN_IF_ERROR(CheckRange("hidden_size", c.hidden, kMaxDimension, source));
  RETURN_IF_ERROR(CheckRange("num_hidden_layers", c.layers, kMaxLayers, source));
  RETURN_IF_ERROR(CheckRange("num_attention_heads", c.heads, kMaxDimension, source));
  RETURN_IF_ERROR(CheckRange("num_key_value_heads", c.kv_heads, c.heads, source));
  RETURN_IF_ERROR(CheckRange("intermediate_size", c.intermediate, kMaxDimension, source));
  RETURN_IF_ERROR(CheckRange("max_position_embeddings", c.max_positions, kMaxDimension, source));
  if (c.heads % c.kv_heads != 0) {
    return InvalidInput("num_key_value_heads: got {}, want a divisor of the {} query heads ({})", c.kv_heads,
                        c.heads, source.checkpoint().path());
  }
  ASSIGN_OR_RETURN(c.head_dim, source.IntOr("head_dim", c.hidden / c.heads));
  RETURN_IF_ERROR(CheckRange("head_dim", c.head_dim, kMaxHeadDim, source));
  if (c.head_dim % 2 != 0) {
    return InvalidInput("head_dim: got {}, want an even number ({})", c.head_dim, source.checkpoint().path());
  }
  ASSIGN_OR_RETURN(const int64_t rotary_dim, source.IntOr("rotary_dim", c.head_dim));
  ASSIGN_OR_RETURN(const int64_t value_dim, source.IntOr("value_head_dim", c.head_dim));
  if (rotary_dim != c.head_dim || value_dim != c.head_dim) {
    return InvalidInput("head sizes: got rotary {} and value {}, want head_dim's {} for both ({})",
                        rotary_dim, value_dim, c.head_dim, source.checkpoint().path());
  }
  return {};
}

Status ReadVocab(const ModelSource& source, DecoderConfig& c) {
  if (source.is_gguf()) {
    // Some writers leave the count out; the embedding's rows are the vocabulary.
    const RawTensor* table = source.checkpoint().FindTensor("token_embd.weight");
    if (table == nullptr || table->shape.size() != 2) {
      return InvalidInput("tensor token_embd.weight: got none of rank 2, want one ({})",
                          source.checkpoint().path());
    }
    c.vocab = table->shape[0];
    c.tied_head = !source.HasTensor("lm_head.weight");  // GGUF's convention
  } else {
    ASSIGN_OR_RETURN(c.vocab, source.Int("vocab_size"));
    ASSIGN_OR_RETURN(c.tied_head, source.BoolOr("tie_word_embeddings", false));
  }
  return CheckRange("vocab_size", c.vocab, kMaxDimension, source);
}

// Transformers 5 keeps theta and scaling together in rope_parameters; before, rope_theta and rope_scaling.
Status ReadRope(const ModelSource& source, DecoderConfig& c) {
  const std::string group = source.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", group, name); };
  ASSIGN_OR_RETURN(const double theta, source.FloatOr("rope_theta", 10000.0));
  ASSIGN_OR_RETURN(c.rope_theta, source.FloatOr(key("rope_theta"), theta));
  ASSIGN_OR_RETURN(const double partial, source.FloatOr(key("partial_rotary_factor"), 1.0));
  ASSIGN_OR_RETURN(const double top_partial, source.FloatOr("partial_rotary_factor", 1.0));
  if (partial != 1.0 || top_partial != 1.0) {
    return InvalidInput("partial_rotary_factor: got {}, want 1 ({})", partial * top_partial,
                        source.checkpoint().path());
  }
  ASSIGN_OR_RETURN(const std::string old_type, source.StringOr(key("type"), "default"));
  ASSIGN_OR_RETURN(const std::string type, source.StringOr(key("rope_type"), old_type));
  RopeScaling& s = c.rope_scaling;
  if (type == "default" || type == "none") return {};
  if (type == "linear") {
    s.type = RopeScaling::Type::kLinear;
  } else if (type == "llama3") {
    s.type = RopeScaling::Type::kLlama3;
    ASSIGN_OR_RETURN(s.low_freq_factor, source.Float(key("low_freq_factor")));
    ASSIGN_OR_RETURN(s.high_freq_factor, source.Float(key("high_freq_factor")));
    ASSIGN_OR_RETURN(s.original_max_position, source.Float(key("original_max_position_embeddings")));
  } else if (type == "yarn") {
    s.type = RopeScaling::Type::kYarn;
    ASSIGN_OR_RETURN(s.original_max_position, source.FloatOr(key("original_max_position_embeddings"),
                                                             static_cast<double>(c.max_positions)));
    ASSIGN_OR_RETURN(s.attention_factor, source.FloatOr(key("attention_factor"), 0.0));
    ASSIGN_OR_RETURN(s.beta_fast, source.FloatOr(key("beta_fast"), 32.0));
    ASSIGN_OR_RETURN(s.beta_slow, source.FloatOr(key("beta_slow"), 1.0));
    ASSIGN_OR_RETURN(s.truncate, source.BoolOr(key("truncate"), true));
    if (source.Has(key("mscale")) || source.Has(key("mscale_all_dim"))) {
      return InvalidInput("{}: got mscale, want attention_factor or neither ({})", group,
                          source.checkpoint().path());
    }
  } else {
    return InvalidInput("rope_type: got '{}', want default, linear, llama3 or yarn ({})", type,
                        source.checkpoint().path());
  }
  ASSIGN_OR_RETURN(s.factor, source.Float(key("factor")));
  return {};
}

}  // namespace

Result<DecoderConfig> ReadCommonConfig(const ModelSource& source) {
  DecoderConfig c;
  if (source.Has("quantization_config")) {
    return InvalidInput("quantization_config: got one, want plain F32, F16 or BF16 weights ({})",
                        source.checkpoint().path());
  }
  RETURN_IF_ERROR(ReadSizes(source, c));
  RETURN_IF_ERROR(ReadVocab(source, c));
  RETURN_IF_ERROR(ReadRope(source, c));
  RETURN_IF_ERROR(ValidateRope(c.head_dim, c.rope_theta, c.rope_scaling));
  const std::string factors = "rope_freqs.weight";  // GGUF's form of llama3 scaling
  DeclareRope(source.is_gguf() && source.HasTensor(factors) ? factors : "", c);
  ASSIGN_OR_RETURN(const double eps, source.FloatOr("rms_norm_eps", 1e-6));
  c.norm_eps = static_cast<float>(eps);
  if (!(c.norm_eps > 0.0f && c.norm_eps < 1.0f)) {
    return InvalidInput("rms_norm_eps: got {}, want between 0 and 1 ({})", eps, source.checkpoint().path());
  }
  ASSIGN_OR_RETURN(const std::string activation, source.StringOr("hidden_act", "silu"));
  const std::optional<Activation> known = ParseActivation(activation);
  if (!known) {
    return InvalidInput("hidden_act: got '{}', want silu or gelu_pytorch_tanh ({})", activation,
                        source.checkpoint().path());
  }
  c.activation = *known;
  c.window.assign(c.layers, 0);
  return c;
}

Result<std::vector<int32_t>> ReadLayerWindows(const ModelSource& source, int64_t layers) {
  std::vector<int32_t> windows(layers, 0);
  ASSIGN_OR_RETURN(const bool use_window, source.BoolOr("use_sliding_window", false));
  if (!use_window || (source.Mentions("sliding_window") && !source.Has("sliding_window"))) return windows;
  ASSIGN_OR_RETURN(const int64_t window, source.IntOr("sliding_window", 4096));
  RETURN_IF_ERROR(CheckRange("sliding_window", window, INT32_MAX, source));
  ASSIGN_OR_RETURN(const int64_t full_layers, source.IntOr("max_window_layers", 28));
  for (int64_t i = full_layers; i < layers; ++i) windows[i] = static_cast<int32_t>(window);
  if (!source.Has("layer_types")) return windows;
  const nlohmann::json& types = source.checkpoint().config()["layer_types"];
  if (!types.is_array() || static_cast<int64_t>(types.size()) != layers) {
    return InvalidInput("layer_types: got {} entries, want one for each of {} layers ({})", types.size(),
                        layers, source.checkpoint().path());
  }
  for (int64_t i = 0; i < layers; ++i) {
    if (types[i] != "full_attention" && types[i] != "sliding_attention") {
      return InvalidInput("layer_types: got {}, want full_attention or sliding_attention (layer {})",
                          types[i].dump(), i);
    }
    windows[i] = types[i] == "sliding_attention" ? static_cast<int32_t>(window) : 0;
  }
  return windows;
}

}  // namespace plumbline
