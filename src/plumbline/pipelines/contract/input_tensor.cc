#include "plumbline/pipelines/contract/input_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace plumbline {

std::string ToString(const InputShape& shape) { return fmt::format("[{}]", fmt::join(shape.sizes(), ", ")); }

std::string ToString(const std::vector<Dim>& shape) {
  std::vector<std::string> sizes;
  for (const Dim& dim : shape) sizes.push_back(dim.is_named() ? dim.name : fmt::to_string(dim.size));
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

std::string ToString(const InputTensor& tensor) {
  return fmt::format("{} {} on {}", Info(tensor.dtype).name, ToString(tensor.shape), ToString(tensor.device));
}

std::string ToString(const InputSpec& spec) {
  return fmt::format("{} {} on {}", Info(spec.dtype).name, ToString(spec.shape), ToString(spec.device));
}

}  // namespace plumbline
