#include "plumbline/models/expert_tensors.h"

#include <utility>

namespace plumbline {
namespace {

class Finder {
 public:
  Finder(const ModelSource& source, const ExpertConfig& experts, int64_t hidden, int64_t layer)
      : source_(source),
        experts_(experts),
        hidden_(hidden),
        prefix_(fmt::format("model.layers.{}.", layer)) {}

  Result<ExpertTensors> Find() {
    const bool mixtral = source_.HasTensor(prefix_ + "block_sparse_moe.gate.weight");
    found_.router = prefix_ + (mixtral ? "block_sparse_moe.gate" : "mlp.gate");
    RETURN_IF_ERROR(mixtral             ? Separate("block_sparse_moe", "w1", "w3", "w2")
                    : source_.is_gguf() ? Stacked()
                    : source_.HasTensor(prefix_ + "mlp.experts.gate_up_proj")
                        ? Fused()
                        : Separate("mlp", "gate_proj", "up_proj", "down_proj"));
    return std::move(found_);
  }

 private:
  Result<const RawTensor*> Tensor(std::string name, std::initializer_list<int64_t> shape) {
    found_.names.push_back(std::move(name));
    return source_.Tensor(found_.names.back(), shape);
  }

  // One tensor an expert and projection.
  Status Separate(std::string_view module, std::string_view gate, std::string_view up,
                  std::string_view down) {
    for (int64_t e = 0; e < experts_.count; ++e) {
      const auto name = [&](std::string_view projection) {
        return fmt::format("{}{}.experts.{}.{}.weight", prefix_, module, e, projection);
      };
      ASSIGN_OR_RETURN(const RawTensor* g, Tensor(name(gate), {experts_.intermediate, hidden_}));
      ASSIGN_OR_RETURN(const RawTensor* u, Tensor(name(up), {experts_.intermediate, hidden_}));
      ASSIGN_OR_RETURN(const RawTensor* d, Tensor(name(down), {hidden_, experts_.intermediate}));
      found_.gate.push_back(*g);
      found_.up.push_back(*u);
      found_.down.push_back(*d);
    }
    return {};
  }

  // Matrix `index` of a stack of them.
  static RawTensor Slice(const RawTensor& stack, int64_t index) {
    RawTensor matrix = stack;
    matrix.shape = {stack.shape[1], stack.shape[2]};
    matrix.data = static_cast<const char*>(stack.data) + index * stack.shape[1] * matrix.RowBytes();
    return matrix;
  }

  // A projection's experts one behind the other.
  Status Stacked() {
    const std::string experts = prefix_ + "mlp.experts.";
    const int64_t n = experts_.count;
    ASSIGN_OR_RETURN(const RawTensor* g,
                     Tensor(experts + "gate_proj.weight", {n, experts_.intermediate, hidden_}));
    ASSIGN_OR_RETURN(const RawTensor* u,
                     Tensor(experts + "up_proj.weight", {n, experts_.intermediate, hidden_}));
    ASSIGN_OR_RETURN(const RawTensor* d,
                     Tensor(experts + "down_proj.weight", {n, hidden_, experts_.intermediate}));
    for (int64_t e = 0; e < n; ++e) {
      found_.gate.push_back(Slice(*g, e));
      found_.up.push_back(Slice(*u, e));
      found_.down.push_back(Slice(*d, e));
    }
    return {};
  }

  // The same, each expert's up_proj behind its gate_proj.
  Status Fused() {
    const std::string experts = prefix_ + "mlp.experts.";
    const int64_t n = experts_.count, width = experts_.intermediate;
    ASSIGN_OR_RETURN(const RawTensor* both, Tensor(experts + "gate_up_proj", {n, 2 * width, hidden_}));
    ASSIGN_OR_RETURN(const RawTensor* d, Tensor(experts + "down_proj", {n, hidden_, width}));
    for (int64_t e = 0; e < n; ++e) {
      const RawTensor pair = Slice(*both, e);
      found_.gate.push_back(pair.Rows(0, width));
      found_.up.push_back(pair.Rows(width, 2 * width));
      found_.down.push_back(Slice(*d, e));
    }
    return {};
  }

  const ModelSource& source_;
  const ExpertConfig& experts_;
  const int64_t hidden_;
  const std::string prefix_;
  ExpertTensors found_;
};

}  // namespace

Result<ExpertTensors> ExpertTensors::Find(const ModelSource& source, const DecoderConfig& config,
                                          int64_t layer) {
  return Finder(source, config.experts, config.hidden, layer).Find();
}

}  // namespace plumbline
