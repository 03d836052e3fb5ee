#include "plumbline/models/model_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

namespace plumbline {
namespace {

// config.json's key -> GGUF's key after "<architecture>.".
constexpr std::pair<std::string_view, std::string_view> kGgufKeys[] = {
    {"hidden_size", "embedding_length"},
    {"num_hidden_layers", "block_count"},
    {"num_attention_heads", "attention.head_count"},
    {"num_key_value_heads", "attention.head_count_kv"},
    {"head_dim", "attention.key_length"},
    {"value_head_dim", "attention.value_length"},
    {"rotary_dim", "rope.dimension_count"},
    {"intermediate_size", "feed_forward_length"},
    {"max_position_embeddings", "context_length"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"rope_theta", "rope.freq_base"},
    {"sliding_window", "attention.sliding_window"},
    {"rope_scaling.rope_type", "rope.scaling.type"},
    {"rope_scaling.factor", "rope.scaling.factor"},
    {"rope_scaling.original_max_position_embeddings", "rope.scaling.original_context_length"},
    {"rope_scaling.attention_factor", "rope.scaling.attn_factor"},
    {"rope_scaling.beta_fast", "rope.scaling.yarn_beta_fast"},
    {"rope_scaling.beta_slow", "rope.scaling.yarn_beta_slow"},
    {"num_experts", "expert_count"},
    {"num_experts_per_tok", "expert_used_count"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {"norm_topk_prob", "expert_weights_norm"},
};

// Hugging Face's tensor name -> GGUF's, outside the layers and inside a layer.
constexpr std::pair<std::string_view, std::string_view> kGgufTensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"rope_freqs.weight", "rope_freqs.weight"},
};
constexpr std::pair<std::string_view, std::string_view> kGgufLayerTensors[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.experts.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.up_proj", "ffn_up_exps"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
};
constexpr std::string_view kLayerPrefix = "model.layers.";

// Buffers that older exporters stored and nothing reads.
bool IsIgnorable(std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); }

std::string_view JsonType(const nlohmann::json& value) { return value.type_name(); }

}  // namespace

Result<std::string> ModelSource::ModelType() const {
  if (is_gguf()) return checkpoint_.gguf().GetString("general.architecture");
  const nlohmann::json* type = FindJson("model_type");
  if (type == nullptr || !type->is_string()) {
    return InvalidInput("model_type: got none, want a string ({}/config.json)", checkpoint_.path());
  }
  return type->get<std::string>();
}

const nlohmann::json* ModelSource::FindJson(std::string_view key) const {
  const nlohmann::json* node = &checkpoint_.config();
  while (true) {
    const size_t dot = key.find('.');
    const auto found = node->find(std::string(key.substr(0, dot)));
    if (found == node->end() || found->is_null()) return nullptr;
    if (dot == std::string_view::npos) return &*found;
    if (!found->is_object()) return nullptr;
    node = &*found;
    key.remove_prefix(dot + 1);
  }
}

std::optional<std::string> ModelSource::GgufKey(std::string_view key) const {
  for (const auto& [hf, gguf] : kGgufKeys) {
    if (hf != key) continue;
    const Result<std::string> type = ModelType();
    if (!type) return std::nullopt;
    return fmt::format("{}.{}", *type, gguf);
  }
  return std::nullopt;
}

bool ModelSource::Has(std::string_view key) const {
  if (!is_gguf()) return FindJson(key) != nullptr;
  const auto gguf_key = GgufKey(key);
  return gguf_key && checkpoint_.gguf().Has(*gguf_key);
}

bool ModelSource::Mentions(std::string_view key) const {
  return is_gguf() ? Has(key) : checkpoint_.config().contains(std::string(key));
}

Result<int64_t> ModelSource::Int(std::string_view key) const {
  if (is_gguf()) return checkpoint_.gguf().GetInt(GgufKey(key).value_or(std::string(key)));
  const nlohmann::json* value = FindJson(key);
  if (value == nullptr)
    return InvalidInput("{}: got none, want an integer ({}/config.json)", key, checkpoint_.path());
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)) {
    return InvalidInput("{}: got a {}, want an integer ({}/config.json)", key, JsonType(*value),
                        checkpoint_.path());
  }
  return value->get<int64_t>();
}

Result<double> ModelSource::Float(std::string_view key) const {
  if (is_gguf()) {
    const std::string name = GgufKey(key).value_or(std::string(key));
    // GGUF stores whole numbers such as the original context length as integers.
    if (const Result<int64_t> whole = checkpoint_.gguf().GetInt(name)) return static_cast<double>(*whole);
    return checkpoint_.gguf().GetFloat(name);
  }
  const nlohmann::json* value = FindJson(key);
  if (value == nullptr)
    return InvalidInput("{}: got none, want a number ({}/config.json)", key, checkpoint_.path());
  if (!value->is_number()) {
    return InvalidInput("{}: got a {}, want a number ({}/config.json)", key, JsonType(*value),
                        checkpoint_.path());
  }
  return value->get<double>();
}

Result<int64_t> ModelSource::IntOr(std::string_view key, int64_t otherwise) const {
  if (!Has(key)) return otherwise;
  return Int(key);
}

Result<double> ModelSource::FloatOr(std::string_view key, double otherwise) const {
  if (!Has(key)) return otherwise;
  return Float(key);
}

Result<bool> ModelSource::BoolOr(std::string_view key, bool otherwise) const {
  if (!Has(key)) return otherwise;
  if (is_gguf()) return checkpoint_.gguf().GetBoolOr(*GgufKey(key), otherwise);
  const nlohmann::json* value = FindJson(key);
  if (!value->is_boolean()) {
    return InvalidInput("{}: got a {}, want a boolean ({}/config.json)", key, JsonType(*value),
                        checkpoint_.path());
  }
  return value->get<bool>();
}

Result<std::string> ModelSource::StringOr(std::string_view key, std::string otherwise) const {
  if (!Has(key)) return otherwise;
  if (is_gguf()) return checkpoint_.gguf().GetString(*GgufKey(key));
  const nlohmann::json* value = FindJson(key);
  if (!value->is_string()) {
    return InvalidInput("{}: got a {}, want a string ({}/config.json)", key, JsonType(*value),
                        checkpoint_.path());
  }
  return value->get<std::string>();
}

std::string ModelSource::TensorName(std::string_view hf_name) const {
  if (!is_gguf()) return std::string(hf_name);
  for (const auto& [hf, gguf] : kGgufTensors) {
    if (hf == hf_name) return std::string(gguf);
  }
  if (hf_name.starts_with(kLayerPrefix)) {
    const std::string_view rest = hf_name.substr(kLayerPrefix.size());
    const size_t dot = rest.find('.');
    const size_t last = rest.rfind('.');
    const std::string_view module = rest.substr(dot + 1, last - dot - 1);
    for (const auto& [hf, gguf] : kGgufLayerTensors) {
      if (hf == module) return fmt::format("blk.{}.{}.{}", rest.substr(0, dot), gguf, rest.substr(last + 1));
    }
  }
  return std::string(hf_name);
}

bool ModelSource::HasTensor(std::string_view name) const {
  return checkpoint_.FindTensor(TensorName(name)) != nullptr;
}

Result<const RawTensor*> ModelSource::Tensor(std::string_view name, std::span<const int64_t> shape) const {
  const std::string own_name = TensorName(name);
  const RawTensor* tensor = checkpoint_.FindTensor(own_name);
  if (tensor == nullptr)
    return InvalidInput("tensor {}: got none, want one ({})", own_name, checkpoint_.path());
  if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end())) {
    return InvalidInput("tensor {}: got shape [{}], want [{}] ({})", own_name, fmt::join(tensor->shape, ", "),
                        fmt::join(shape, ", "), checkpoint_.path());
  }
  return tensor;
}

std::vector<std::string> ModelSource::UnusedTensors(std::span<const std::string> used) const {
  std::set<std::string, std::less<>> known;
  for (const std::string& name : used) known.insert(TensorName(name));
  std::vector<std::string> unused;
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    if (!known.contains(name) && !IsIgnorable(name)) unused.push_back(name);
  }
  return unused;
}

std::vector<int32_t> ModelSource::RotaryRowOrder(int64_t heads, int64_t head_dim) const {
  const Result<std::string> type = ModelType();
  if (!is_gguf() || !type || *type != "llama") return {};
  const int64_t half = head_dim / 2;
  std::vector<int32_t> order(heads * head_dim);
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < head_dim; ++i) {
      order[head * head_dim + i] = static_cast<int32_t>(head * head_dim + 2 * (i % half) + i / half);
    }
  }
  return order;
}

}  // namespace plumbline
