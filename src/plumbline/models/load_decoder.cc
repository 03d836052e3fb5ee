#include "plumbline/models/load_decoder.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plumbline/kernels/dequant/dequant.h"
#include "plumbline/models/architectures.h"
#include "plumbline/nn/leaf.h"

namespace plumbline {
namespace {

// The tensors of one decoder in Hugging Face's names: the single list that loading and sizing walk.
struct LinearName {
  std::string name;  // without ".weight"
  int64_t n, k;
  int64_t granule;  // leaf.h
  bool bias;
  bool rotary = false;  // rows follow RotaryRowOrder
};

std::string LayerName(int64_t layer, std::string_view module) {
  return fmt::format("model.layers.{}.{}", layer, module);
}

// q, k, v, o, gate, up, down of one layer. o_proj's k is cut by KV groups when ranks share a layer, so its
// leaves fit one group's heads.
std::vector<LinearName> LayerLinears(const DecoderConfig& c, int64_t layer) {
  const int64_t group = c.heads / c.kv_heads * c.head_dim;
  return {
      {LayerName(layer, "self_attn.q_proj"), c.QueryWidth(), c.hidden, 0, c.qkv_bias, true},
      {LayerName(layer, "self_attn.k_proj"), c.KvWidth(), c.hidden, 0, c.qkv_bias, true},
      {LayerName(layer, "self_attn.v_proj"), c.KvWidth(), c.hidden, 0, c.qkv_bias},
      {LayerName(layer, "self_attn.o_proj"), c.hidden, c.QueryWidth(), group, c.output_bias},
      {LayerName(layer, "mlp.gate_proj"), c.intermediate, c.hidden, 0, c.mlp_bias},
      {LayerName(layer, "mlp.up_proj"), c.intermediate, c.hidden, 0, c.mlp_bias},
      {LayerName(layer, "mlp.down_proj"), c.hidden, c.intermediate, 0, c.mlp_bias},
  };
}

class Loader {
 public:
  Loader(const KernelContext& context, const ModelSource& source, const DecoderConfig& config,
         Compute compute, const LoadProgress& progress)
      : context_(context), source_(source), config_(config), compute_(compute), progress_(progress) {}

  Result<Decoder> Load();

 private:
  Result<PackedWeight> Weight(const std::string& name, int64_t n, int64_t k, int64_t granule,
                              std::span<const int32_t> row_order = {});
  Result<std::vector<float>> Vector(const std::string& name, int64_t size);
  Status LoadLinear(const LinearName& spec, Linear& linear);
  Status LoadLayer(int64_t index, DecoderLayer& layer);
  Status LoadRope(Decoder& decoder);
  Status RefuseUnused() const;
  void Done(const RawTensor& tensor);

  const KernelContext& context_;
  const ModelSource& source_;
  const DecoderConfig& config_;
  const Compute compute_;
  const LoadProgress& progress_;
  std::vector<std::string> used_;
  int64_t done_bytes_ = 0;
};

void Loader::Done(const RawTensor& tensor) {
  source_.checkpoint().DropPages();
  done_bytes_ += ByteSize(tensor.dtype, tensor.Elements());
  if (progress_) progress_(done_bytes_, source_.checkpoint().file_bytes());
}

Result<PackedWeight> Loader::Weight(const std::string& name, int64_t n, int64_t k, int64_t granule,
                                    std::span<const int32_t> row_order) {
  used_.push_back(name);
  ASSIGN_OR_RETURN(const RawTensor* raw, source_.Tensor(name, std::vector<int64_t>{n, k}));
  ASSIGN_OR_RETURN(PackedWeight weight,
                   PackedWeight::Pack(context_, *raw, compute_, LeafLength(granule, raw->dtype), row_order,
                                      [this] { source_.checkpoint().DropPages(); }));
  Done(*raw);
  return weight;
}

Result<std::vector<float>> Loader::Vector(const std::string& name, int64_t size) {
  used_.push_back(name);
  ASSIGN_OR_RETURN(const RawTensor* raw, source_.Tensor(name, std::vector<int64_t>{size}));
  if (IsQuantized(raw->dtype) && size % Info(raw->dtype).block_elements != 0) {
    return InvalidInput("tensor {}: got {} elements, want whole {} blocks", raw->name, size,
                        Info(raw->dtype).name);
  }
  std::vector<float> values(size);
  DequantizeRow(raw->dtype, raw->data, size, values.data());
  Done(*raw);
  return values;
}

Status Loader::LoadLinear(const LinearName& spec, Linear& linear) {
  const std::vector<int32_t> order = spec.rotary
                                         ? source_.RotaryRowOrder(spec.n / config_.head_dim, config_.head_dim)
                                         : std::vector<int32_t>{};
  ASSIGN_OR_RETURN(linear.weight, Weight(spec.name + ".weight", spec.n, spec.k, spec.granule, order));
  if (!spec.bias) return {};
  ASSIGN_OR_RETURN(std::vector<float> bias, Vector(spec.name + ".bias", spec.n));
  linear.bias = bias;
  for (size_t i = 0; i < order.size(); ++i) linear.bias[i] = bias[order[i]];
  return {};
}

Status Loader::LoadLayer(int64_t index, DecoderLayer& layer) {
  const int64_t hidden = config_.hidden;
  ASSIGN_OR_RETURN(layer.attention_norm, Vector(LayerName(index, "input_layernorm.weight"), hidden));
  ASSIGN_OR_RETURN(layer.mlp_norm, Vector(LayerName(index, "post_attention_layernorm.weight"), hidden));
  SelfAttention& a = layer.attention;
  if (config_.qk_norm) {
    ASSIGN_OR_RETURN(a.q_norm, Vector(LayerName(index, "self_attn.q_norm.weight"), config_.head_dim));
    ASSIGN_OR_RETURN(a.k_norm, Vector(LayerName(index, "self_attn.k_norm.weight"), config_.head_dim));
  }
  Linear* const linears[] = {
      &a.q_proj,          &a.k_proj,           &a.v_proj, &a.o_proj, &layer.mlp.gate_proj,
      &layer.mlp.up_proj, &layer.mlp.down_proj};
  const std::vector<LinearName> specs = LayerLinears(config_, index);
  for (size_t i = 0; i < specs.size(); ++i) RETURN_IF_ERROR(LoadLinear(specs[i], *linears[i]));
  return {};
}

Status Loader::LoadRope(Decoder& decoder) {
  decoder.rope = MakeRopeFrequencies(config_.head_dim, config_.rope_theta, config_.rope_scaling);
  if (!config_.rope_factors) return {};
  ASSIGN_OR_RETURN(const std::vector<float> factors, Vector("rope_freqs.weight", config_.head_dim / 2));
  for (float factor : factors) {
    if (!(factor > 0.0f))
      return InvalidInput("tensor rope_freqs.weight: got {}, want factors above 0", factor);
  }
  DivideFrequencies(decoder.rope, factors);
  return {};
}

Status Loader::RefuseUnused() const {
  std::vector<std::string> used = used_;
  if (config_.tied_head) used.push_back("lm_head.weight");  // a copy some exporters keep
  const std::vector<std::string> unused = source_.UnusedTensors(used);
  if (unused.empty()) return {};
  return InvalidInput("tensor {}: got a weight that {} does not use, want none ({} such, {})", unused.front(),
                      config_.architecture, unused.size(), source_.checkpoint().path());
}

Result<Decoder> Loader::Load() {
  Decoder decoder;
  decoder.config = config_;
  decoder.compute = compute_;
  ASSIGN_OR_RETURN(PackedWeight embedding,
                   Weight("model.embed_tokens.weight", config_.vocab, config_.hidden, 0));
  decoder.embedding = std::make_shared<PackedWeight>(std::move(embedding));
  decoder.layers.resize(config_.layers);
  for (int64_t i = 0; i < config_.layers; ++i) RETURN_IF_ERROR(LoadLayer(i, decoder.layers[i]));
  ASSIGN_OR_RETURN(decoder.final_norm.weight, Vector("model.norm.weight", config_.hidden));
  decoder.final_norm.eps = config_.norm_eps;
  decoder.head.weight = decoder.embedding;
  if (!config_.tied_head) {
    ASSIGN_OR_RETURN(PackedWeight head, Weight("lm_head.weight", config_.vocab, config_.hidden, 0));
    decoder.head.weight = std::make_shared<PackedWeight>(std::move(head));
  }
  RETURN_IF_ERROR(LoadRope(decoder));
  RETURN_IF_ERROR(RefuseUnused());
  return decoder;
}

}  // namespace

Result<Decoder> LoadDecoder(const KernelContext& context, const Checkpoint& checkpoint, Compute compute,
                            const LoadProgress& progress) {
  const ModelSource source(checkpoint);
  ASSIGN_OR_RETURN(const DecoderConfig config, ReadDecoderConfig(source));
  return Loader(context, source, config, compute, progress).Load();
}

Result<int64_t> PackedDecoderBytes(const Checkpoint& checkpoint, Compute compute) {
  const ModelSource source(checkpoint);
  ASSIGN_OR_RETURN(const DecoderConfig c, ReadDecoderConfig(source));
  std::vector<LinearName> linears{{"model.embed_tokens", c.vocab, c.hidden, 0, false}};
  if (!c.tied_head) linears.push_back({"lm_head", c.vocab, c.hidden, 0, false});
  for (int64_t i = 0; i < c.layers; ++i) {
    for (LinearName& linear : LayerLinears(c, i)) linears.push_back(std::move(linear));
  }
  int64_t bytes = 0;
  for (const LinearName& linear : linears) {
    ASSIGN_OR_RETURN(const RawTensor* raw,
                     source.Tensor(linear.name + ".weight", std::vector<int64_t>{linear.n, linear.k}));
    bytes += PackedWeight::PackedBytes(raw->dtype, linear.n, linear.k, compute);
  }
  return bytes;
}

}  // namespace plumbline
