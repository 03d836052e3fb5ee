// One view of a checkpoint's configuration and tensors, in Hugging Face's names, whichever format it is in.
// The only place that knows how GGUF renames keys and tensors and reorders rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/io/checkpoint.h"

namespace plumbline {

class ModelSource {
 public:
  explicit ModelSource(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }
  bool is_gguf() const { return checkpoint_.is_gguf(); }

  // GGUF's general.architecture, or config.json's model_type.
  Result<std::string> ModelType() const;

  // Configuration by config.json's key; nested keys are dotted ("rope_scaling.factor"). GGUF keys come from
  // the table in the .cc; a key the format does not have is absent. A value of another type is an error. The
  // forms without a default refuse absence.
  bool Has(std::string_view key) const;
  bool Mentions(std::string_view key) const;  // Has, or a top-level key that config.json sets to null
  Result<int64_t> Int(std::string_view key) const;
  Result<int64_t> IntOr(std::string_view key, int64_t otherwise) const;
  Result<double> Float(std::string_view key) const;
  Result<double> FloatOr(std::string_view key, double otherwise) const;
  Result<bool> BoolOr(std::string_view key, bool otherwise) const;
  Result<std::string> StringOr(std::string_view key, std::string otherwise) const;

  // A tensor by its Hugging Face name ("model.layers.0.self_attn.q_proj.weight"), of exactly this shape.
  Result<const RawTensor*> Tensor(std::string_view name, std::span<const int64_t> shape) const;
  bool HasTensor(std::string_view name) const;
  // Names, in the checkpoint's own spelling, of weights that none of `used` (Hugging Face names) reaches.
  std::vector<std::string> UnusedTensors(std::span<const std::string> used) const;

  // Where q_proj and k_proj rows are stored interleaved (GGUF's llama architecture rotates neighbouring
  // rows): the source row of each row in half-split order; empty where they are stored as Hugging Face has
  // them.
  std::vector<int32_t> RotaryRowOrder(int64_t heads, int64_t head_dim) const;

 private:
  std::string TensorName(std::string_view hf_name) const;
  const nlohmann::json* FindJson(std::string_view key) const;
  std::optional<std::string> GgufKey(std::string_view key) const;

  const Checkpoint& checkpoint_;
};

}  // namespace plumbline
