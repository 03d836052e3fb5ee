#include "plumbline/models/load_decoder.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plumbline/kernels/dequant/dequant.h"
#include "plumbline/models/architectures.h"
#include "plumbline/models/expert_tensors.h"
#include "plumbline/models/load_constants.h"
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

// q, k, v, o of one layer, and gate, up, down of a dense one (ExpertTensors has a sparse one's). o_proj's k
// is cut by KV groups when ranks share a layer, so its leaves fit one group's heads.
std::vector<LinearName> LayerLinears(const DecoderConfig& c, int64_t layer) {
  const int64_t group = c.heads / c.kv_heads * c.head_dim;
  std::vector<LinearName> linears{
      {LayerName(layer, "self_attn.q_proj"), c.QueryWidth(), c.hidden, 0, c.qkv_bias, true},
      {LayerName(layer, "self_attn.k_proj"), c.KvWidth(), c.hidden, 0, c.qkv_bias, true},
      {LayerName(layer, "self_attn.v_proj"), c.KvWidth(), c.hidden, 0, c.qkv_bias},
      {LayerName(layer, "self_attn.o_proj"), c.hidden, c.QueryWidth(), group, c.output_bias},
  };
  if (c.Sparse(layer)) return linears;
  linears.push_back({LayerName(layer, "mlp.gate_proj"), c.intermediate, c.hidden, 0, c.mlp_bias});
  linears.push_back({LayerName(layer, "mlp.up_proj"), c.intermediate, c.hidden, 0, c.mlp_bias});
  linears.push_back({LayerName(layer, "mlp.down_proj"), c.hidden, c.intermediate, 0, c.mlp_bias});
  return linears;
}

class Loader {
 public:
  Loader(const KernelContext& context, const ModelSource& source, const DecoderConfig& config,
         const LoadOptions& options, const LoadProgress& progress)
      : context_(context), source_(source), config_(config), options_(options), progress_(progress) {
    shard_ = ShardOf(config, options.degrees, options.rank);
  }

  Result<Decoder> Load();

 private:
  struct Found {
    const RawTensor* raw;
    std::vector<int32_t> order;  // of its rows; empty: as they are
  };
  Result<Found> Find(const LinearName& spec);
  Result<PackedWeight> Pack(const RawTensor& source, int64_t leaf, std::span<const int32_t> row_order = {});
  Result<PackedWeight> Table(const std::string& name);
  Result<std::vector<float>> Vector(const std::string& name, int64_t size);
  Status LoadColumns(const LinearName& spec, const Range& rows, Linear& linear);
  Status LoadRows(const LinearName& spec, const std::vector<Range>& inputs, RowParallelLinear& linear);
  Status PackRows(const RawTensor& raw, int64_t granule, const std::vector<Range>& inputs, int part,
                  RowParallelLinear& linear);
  Status LoadLayer(int64_t index, DecoderLayer& layer);
  Result<ExpertTensors> FindExperts(int64_t layer);
  Status LoadExperts(int64_t index, ExpertMlp& mlp);
  Status LoadLayers(Decoder& decoder);
  Status LoadTables(Decoder& decoder);
  Status CheckOtherLayer(int64_t index);
  Status RefuseUnused() const;
  void Done(const RawTensor& tensor);

  const KernelContext& context_;
  const ModelSource& source_;
  const DecoderConfig& config_;
  const LoadOptions& options_;
  const LoadProgress& progress_;
  DecoderShard shard_;
  BufferArena arena_;  // of the packed weights
  std::vector<std::string> used_;
  int64_t done_bytes_ = 0;
};

void Loader::Done(const RawTensor& tensor) {
  source_.checkpoint().DropPages();
  done_bytes_ += ByteSize(tensor.dtype, tensor.Elements());
  if (progress_) progress_(done_bytes_, source_.checkpoint().file_bytes());
}

Result<Loader::Found> Loader::Find(const LinearName& spec) {
  used_.push_back(spec.name + ".weight");
  if (spec.bias) used_.push_back(spec.name + ".bias");
  ASSIGN_OR_RETURN(const RawTensor* raw, source_.Tensor(used_[used_.size() - (spec.bias ? 2 : 1)],
                                                        std::vector<int64_t>{spec.n, spec.k}));
  return Found{raw, spec.rotary ? source_.RotaryRowOrder(spec.n / config_.head_dim, config_.head_dim)
                                : std::vector<int32_t>{}};
}

Result<PackedWeight> Loader::Pack(const RawTensor& source, int64_t leaf, std::span<const int32_t> row_order) {
  ASSIGN_OR_RETURN(PackedWeight weight,
                   PackedWeight::Pack(context_, source, options_.compute, leaf, row_order, &arena_,
                                      [this] { source_.checkpoint().DropPages(); }));
  Done(source);
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

// Rows `rows` of the weight.
Status Loader::LoadColumns(const LinearName& spec, const Range& rows, Linear& linear) {
  ASSIGN_OR_RETURN(const Found found, Find(spec));
  if (rows.size() == 0) return {};
  const std::span<const int32_t> order(found.order);
  const int64_t leaf = LeafLength(spec.granule, found.raw->dtype);
  if (order.empty()) {
    ASSIGN_OR_RETURN(linear.weight, Pack(found.raw->Rows(rows.begin, rows.end), leaf));
  } else {
    ASSIGN_OR_RETURN(linear.weight, Pack(*found.raw, leaf, order.subspan(rows.begin, rows.size())));
  }
  if (!spec.bias) return {};
  ASSIGN_OR_RETURN(const std::vector<float> bias, Vector(spec.name + ".bias", spec.n));
  linear.bias.resize(rows.size());
  for (int64_t i = 0; i < rows.size(); ++i)
    linear.bias[i] = bias[order.empty() ? rows.begin + i : order[rows.begin + i]];
  return {};
}

// The columns of this rank, one weight a node of the reduction's tree.
Status Loader::LoadRows(const LinearName& spec, const std::vector<Range>& inputs, RowParallelLinear& linear) {
  ASSIGN_OR_RETURN(const Found found, Find(spec));
  RETURN_IF_ERROR(PackRows(*found.raw, spec.granule, inputs, shard_.at.tensor, linear));
  if (!spec.bias) return {};
  ASSIGN_OR_RETURN(linear.bias, Vector(spec.name + ".bias", spec.n));
  return {};
}

Status Loader::PackRows(const RawTensor& raw, int64_t granule, const std::vector<Range>& inputs, int part,
                        RowParallelLinear& linear) {
  const int64_t leaf = LeafLength(granule, raw.dtype);
  linear = RowParallelLinear::Cut(raw.shape[1], leaf, inputs);
  for (const Range& columns : linear.PartsOf(part)) {
    ASSIGN_OR_RETURN(PackedWeight weight, Pack(raw.Columns(columns.begin, columns.end), leaf));
    linear.parts.push_back({.k_begin = columns.begin, .weight = std::move(weight)});
  }
  return {};
}

Result<ExpertTensors> Loader::FindExperts(int64_t layer) {
  ASSIGN_OR_RETURN(ExpertTensors tensors, ExpertTensors::Find(source_, config_, layer));
  used_.insert(used_.end(), tensors.names.begin(), tensors.names.end());
  return tensors;
}

Status Loader::LoadExperts(int64_t index, ExpertMlp& mlp) {
  ASSIGN_OR_RETURN(const ExpertTensors tensors, FindExperts(index));
  const int64_t count = config_.experts.count;
  RETURN_IF_ERROR(LoadColumns({tensors.router, count, config_.hidden, 0, false}, {0, count}, mlp.router));
  std::vector<Range> columns;  // what each rank that shares the experts brings to down_proj
  const int sharing = options_.degrees.ep > 1 ? 1 : options_.degrees.tp;
  for (int r = 0; r < sharing; ++r) columns.push_back(ExpertIntermediateOf(config_, options_.degrees, r));
  const Range& own = shard_.expert_intermediate;
  const auto pack = [&](const RawTensor& raw, Linear& linear) -> Status {
    if (own.size() == 0) return {};
    ASSIGN_OR_RETURN(linear.weight, Pack(raw.Rows(own.begin, own.end), LeafLength(0, raw.dtype)));
    return {};
  };
  mlp.compute = options_.compute;
  mlp.experts.resize(shard_.experts.size());
  for (int64_t e = shard_.experts.begin; e < shard_.experts.end; ++e) {
    ExpertMlp::Expert& expert = mlp.experts[e - shard_.experts.begin];
    RETURN_IF_ERROR(pack(tensors.gate[e], expert.gate_proj));
    RETURN_IF_ERROR(pack(tensors.up[e], expert.up_proj));
    RETURN_IF_ERROR(
        PackRows(tensors.down[e], 0, columns, sharing > 1 ? shard_.at.tensor : 0, expert.down_proj));
  }
  return {};
}

Status Loader::LoadLayer(int64_t index, DecoderLayer& layer) {
  const int64_t hidden = config_.hidden, head_dim = config_.head_dim;
  ASSIGN_OR_RETURN(layer.attention_norm, Vector(LayerName(index, "input_layernorm.weight"), hidden));
  ASSIGN_OR_RETURN(layer.mlp_norm, Vector(LayerName(index, "post_attention_layernorm.weight"), hidden));
  SelfAttention& a = layer.attention;
  if (config_.qk_norm) {
    ASSIGN_OR_RETURN(a.q_norm, Vector(LayerName(index, "self_attn.q_norm.weight"), head_dim));
    ASSIGN_OR_RETURN(a.k_norm, Vector(LayerName(index, "self_attn.k_norm.weight"), head_dim));
  }
  std::vector<Range> contexts, columns;  // what each rank brings to o_proj and down_proj
  for (int r = 0; r < options_.degrees.tp; ++r) {
    const Range heads = HeadsOf(config_, options_.degrees.tp, r);
    contexts.push_back({heads.begin * head_dim, heads.end * head_dim});
    columns.push_back(IntermediateOf(config_, options_.degrees.tp, r));
  }
  const Range q = contexts[shard_.at.tensor];
  const Range kv = {shard_.kv_heads.begin * head_dim, shard_.kv_heads.end * head_dim};
  const std::vector<LinearName> specs = LayerLinears(config_, index);
  RETURN_IF_ERROR(LoadColumns(specs[0], q, a.q_proj));
  RETURN_IF_ERROR(LoadColumns(specs[1], kv, a.k_proj));
  RETURN_IF_ERROR(LoadColumns(specs[2], kv, a.v_proj));
  RETURN_IF_ERROR(LoadRows(specs[3], contexts, a.o_proj));
  if (config_.Sparse(index)) return LoadExperts(index, layer.experts);
  RETURN_IF_ERROR(LoadColumns(specs[4], shard_.intermediate, layer.mlp.gate_proj));
  RETURN_IF_ERROR(LoadColumns(specs[5], shard_.intermediate, layer.mlp.up_proj));
  return LoadRows(specs[6], columns, layer.mlp.down_proj);
}

// A layer of another stage: its tensors must be there, but are not read.
Status Loader::CheckOtherLayer(int64_t index) {
  for (const std::string_view name : {"input_layernorm.weight", "post_attention_layernorm.weight"})
    used_.push_back(LayerName(index, name));
  if (config_.qk_norm) {
    for (const std::string_view name : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"})
      used_.push_back(LayerName(index, name));
  }
  for (const LinearName& spec : LayerLinears(config_, index)) {
    if (const auto found = Find(spec); !found) return std::unexpected(found.error());
  }
  if (!config_.Sparse(index)) return {};
  ASSIGN_OR_RETURN(const ExpertTensors tensors, FindExperts(index));
  const auto router = Find({tensors.router, config_.experts.count, config_.hidden, 0, false});
  return router ? Status() : std::unexpected(router.error());
}

Status Loader::LoadLayers(Decoder& decoder) {
  for (const Decoder* other : options_.loaded) {
    if (other == nullptr || other->shard.at.tensor != shard_.at.tensor ||
        other->shard.at.stage != shard_.at.stage || other->shard.experts != shard_.experts)
      continue;
    decoder.layers = other->layers;
    break;
  }
  std::vector<DecoderLayer> layers(shard_.layers.size());
  for (int64_t i = 0; i < config_.layers; ++i) {
    const bool own = i >= shard_.layers.begin && i < shard_.layers.end;
    RETURN_IF_ERROR(own && decoder.layers == nullptr ? LoadLayer(i, layers[i - shard_.layers.begin])
                                                     : CheckOtherLayer(i));
  }
  if (decoder.layers == nullptr)
    decoder.layers = std::make_shared<const std::vector<DecoderLayer>>(std::move(layers));
  return {};
}

// This rank's rows of a table [vocab, hidden]; empty where it has none.
Result<PackedWeight> Loader::Table(const std::string& name) {
  ASSIGN_OR_RETURN(const Found found, Find({name, config_.vocab, config_.hidden, 0, false}));
  if (shard_.vocab.size() == 0) return PackedWeight();
  return Pack(found.raw->Rows(shard_.vocab.begin, shard_.vocab.end), LeafLength(0, found.raw->dtype));
}

Status Loader::LoadTables(Decoder& decoder) {
  decoder.embedding.vocab = config_.vocab;
  decoder.head = {.vocab = config_.vocab,
                  .hidden = config_.hidden,
                  .compute = WithoutIntegers(options_.compute),
                  .ids = shard_.vocab};
  const bool embeds = shard_.FirstStage() || (shard_.LastStage() && config_.tied_head);
  used_.emplace_back("model.embed_tokens.weight");
  if (embeds) {
    ASSIGN_OR_RETURN(PackedWeight table, Table("model.embed_tokens"));
    decoder.embedding.weight = std::make_shared<PackedWeight>(std::move(table));
  }
  if (config_.tied_head) {
    if (shard_.LastStage()) decoder.head.weight = decoder.embedding.weight;
    return {};
  }
  used_.emplace_back("lm_head.weight");
  if (!shard_.LastStage()) return {};
  ASSIGN_OR_RETURN(PackedWeight head, Table("lm_head"));
  decoder.head.weight = std::make_shared<PackedWeight>(std::move(head));
  return {};
}

Status Loader::RefuseUnused() const {
  std::vector<std::string> used = used_;
  if (config_.tied_head) used.emplace_back("lm_head.weight");  // a copy some exporters keep
  const std::vector<std::string> unused = source_.UnusedTensors(used);
  if (unused.empty()) return {};
  return InvalidInput("tensor {}: got a weight that {} does not use, want none ({} such, {})", unused.front(),
                      config_.architecture, unused.size(), source_.checkpoint().path());
}

Result<Decoder> Loader::Load() {
  Decoder decoder;
  decoder.config = config_;
  decoder.compute = options_.compute;
  decoder.shard = shard_;
  RETURN_IF_ERROR(LoadTables(decoder));
  if (decoder.head.weight != nullptr && decoder.head.weight->n() > 0)
    decoder.head.compute = decoder.head.weight->compute();
  RETURN_IF_ERROR(LoadLayers(decoder));
  ASSIGN_OR_RETURN(decoder.final_norm.weight, Vector("model.norm.weight", config_.hidden));
  decoder.final_norm.eps = config_.norm_eps;
  ASSIGN_OR_RETURN(decoder.constants, LoadConstants(source_, config_.declares));
  for (std::string& name : ConstantTensors(config_.declares)) used_.push_back(std::move(name));
  RETURN_IF_ERROR(RefuseUnused());
  return decoder;
}

Status CheckCompute(const Checkpoint& checkpoint, Compute compute) {
  const auto quantized = [](const auto& named) { return IsQuantized(named.second.dtype); };
  if (compute != Compute::kInt8 || std::ranges::any_of(checkpoint.tensors(), quantized)) return {};
  return InvalidInput("--compute: got int8, want bf16 or f32 (no weight of {} is quantised)",
                      checkpoint.path());
}

}  // namespace

Result<Decoder> LoadDecoder(const KernelContext& context, const Checkpoint& checkpoint,
                            const LoadOptions& options, const LoadProgress& progress) {
  RETURN_IF_ERROR(CheckCompute(checkpoint, options.compute));
  const ModelSource source(checkpoint);
  ASSIGN_OR_RETURN(const DecoderConfig config, ReadDecoderConfig(source));
  RETURN_IF_ERROR(CheckDegrees(config, options.degrees));
  return Loader(context, source, config, options, progress).Load();
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
  for (int64_t i = 0; i < c.layers; ++i) {
    if (!c.Sparse(i)) continue;
    ASSIGN_OR_RETURN(const ExpertTensors tensors, ExpertTensors::Find(source, c, i));
    linears.push_back({tensors.router, c.experts.count, c.hidden, 0, false});
    for (const auto* projection : {&tensors.gate, &tensors.up, &tensors.down}) {
      for (const RawTensor& raw : *projection)
        bytes += PackedWeight::PackedBytes(raw.dtype, raw.shape[0], raw.shape[1], compute);
    }
  }
  for (const LinearName& linear : linears) {
    ASSIGN_OR_RETURN(const RawTensor* raw,
                     source.Tensor(linear.name + ".weight", std::vector<int64_t>{linear.n, linear.k}));
    bytes += PackedWeight::PackedBytes(raw->dtype, linear.n, linear.k, compute);
  }
  return bytes;
}

}  // namespace plumbline
