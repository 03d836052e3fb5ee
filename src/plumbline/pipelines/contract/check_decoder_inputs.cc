#include "plumbline/pipelines/contract/check_decoder_inputs.h"

#include <algorithm>
#include <limits>

#include "plumbline/pipelines/contract/check_step_values.h"

namespace plumbline {
namespace internal {

Status Undeclared(const LeafName& name) {
  return InvalidInput("{}: got an input, want none: it is not declared (decoder inputs)", ToString(name));
}

Status Missing(const LeafName& name) {
  return InvalidInput("{}: got none, want the declared input (decoder inputs)", ToString(name));
}

Status OtherLeafCount(const LeafName& name, size_t got, size_t want) {
  return InvalidInput("{}: got {} leaves, want the declared {} (decoder inputs)", ToString(name), got, want);
}

Status OtherPath(const LeafName& got, const LeafName& want) {
  return InvalidInput("{}: got this leaf, want {} as declared (decoder inputs)", ToString(got),
                      ToString(want));
}

}  // namespace internal

namespace {

// The sizes that a step gives to names, in place: looking allocates nothing.
class DimTable {
 public:
  // The size that `name` has, which is `size` where it is new; nothing where the table is full.
  std::optional<int64_t> SizeOf(std::string_view name, int64_t size) {
    for (int i = 0; i < count_; ++i) {
      if (names_[i] == name) return sizes_[i];
    }
    if (count_ == kMost) return std::nullopt;
    names_[count_] = name;
    sizes_[count_++] = size;
    return size;
  }
  static constexpr int kMost = 128;

 private:
  std::array<std::string_view, kMost> names_;
  std::array<int64_t, kMost> sizes_{};
  int count_ = 0;
};

// Scratch has the largest size of a named dimension every step, not the step's.
Status CheckScratchDim(const LeafName& name, const Dim& dim, int64_t size, const StepLimits& limits) {
  if (limits.largest == nullptr) return {};
  const auto largest = limits.largest->find(dim.name);
  if (largest == limits.largest->end() || size == largest->second) return {};
  return InvalidInput("{}: got {} = {}, want the largest {} (decoder inputs)", ToString(name), dim.name, size,
                      largest->second);
}

Status CheckDim(const LeafName& name, const Dim& dim, int64_t size, const StepLimits& limits,
                DimTable& table) {
  if (!dim.is_named()) {
    if (size == dim.size) return {};
    return InvalidInput("{}: got a dimension of {}, want {} (decoder inputs)", ToString(name), size,
                        dim.size);
  }
  if (name.field == DecoderField::kScratch) return CheckScratchDim(name, dim, size, limits);
  if (size < 0)
    return InvalidInput("{}: got {} = {}, want 0 or more (decoder inputs)", ToString(name), dim.name, size);
  const std::optional<int64_t> known = table.SizeOf(dim.name, size);
  if (!known.has_value()) {
    return InvalidInput("{}: got more than {} names of dimensions, want fewer (decoder inputs)",
                        ToString(name), DimTable::kMost);
  }
  if (*known != size) {
    return InvalidInput("{}: got {} = {}, want {} as in the inputs before it (decoder inputs)",
                        ToString(name), dim.name, size, *known);
  }
  if (limits.largest == nullptr) return {};
  const auto largest = limits.largest->find(dim.name);
  if (largest != limits.largest->end() && size > largest->second) {
    return InvalidInput("{}: got {} = {}, want at most the declared {} (decoder inputs)", ToString(name),
                        dim.name, size, largest->second);
  }
  return {};
}

Status CheckLeaf(const LeafName& name, const InputTensor& tensor, const InputSpec& spec,
                 const StepLimits& limits, DimTable& table) {
  // Another rank's buffer: nothing is known of it here.
  const bool elsewhere =
      spec.residence == Residence::kRankLocal && !spec.device.is_host() && spec.device != limits.local;
  if (elsewhere && tensor.data == nullptr) return {};
  if (tensor.data == nullptr && tensor.shape.Elements() != 0) {
    return InvalidInput("{}: got no data, want {} (decoder inputs)", ToString(name), ToString(spec));
  }
  if (tensor.dtype != spec.dtype) {
    return InvalidInput("{}: got dtype {}, want {} (decoder inputs)", ToString(name), Info(tensor.dtype).name,
                        Info(spec.dtype).name);
  }
  if (tensor.device != spec.device) {
    return InvalidInput("{}: got device {}, want {} (decoder inputs)", ToString(name),
                        ToString(tensor.device), ToString(spec.device));
  }
  if (tensor.shape.rank() != static_cast<int>(spec.shape.size())) {
    return InvalidInput("{}: got shape {}, want {} (decoder inputs)", ToString(name), ToString(tensor.shape),
                        ToString(spec.shape));
  }
  for (int d = 0; d < tensor.shape.rank(); ++d) {
    // What is not here may be of another size: names of other ranks' buffers are their own.
    if (elsewhere && spec.shape[d].is_named()) continue;
    RETURN_IF_ERROR(CheckDim(name, spec.shape[d], tensor.shape[d], limits, table));
  }
  return {};
}

}  // namespace

Status CheckDecoderInputs(const DecoderInputs<InputTensor>& inputs, const DecoderInputs<InputSpec>& declared,
                          const StepLimits& limits) {
  RETURN_IF_ERROR(CheckSameStructure(inputs, declared));
  DimTable table;
  Status status;
  ForEachLeafPair(inputs, declared,
                  [&](const LeafName& name, const InputTensor& tensor, const InputSpec& spec) {
                    if (status.has_value()) status = CheckLeaf(name, tensor, spec, limits, table);
                  });
  RETURN_IF_ERROR(status);
  return CheckStepValues(inputs, limits);
}

}  // namespace plumbline
