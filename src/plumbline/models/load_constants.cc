#include "plumbline/models/load_constants.h"

#include <functional>
#include <numeric>
#include <utility>

#include "plumbline/kernels/dequant/dequant.h"

namespace plumbline {
namespace {

int64_t Elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Result<std::vector<float>> ReadTensor(const ModelSource& source, const std::string& name,
                                      const std::vector<int64_t>& shape) {
  ASSIGN_OR_RETURN(const RawTensor* raw, source.Tensor(name, shape));
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (IsQuantized(raw->dtype) && row % Info(raw->dtype).block_elements != 0) {
    return InvalidInput("tensor {}: got {} elements, want whole {} blocks", raw->name, row,
                        Info(raw->dtype).name);
  }
  std::vector<float> values(Elements(shape));
  DequantizeRow(raw->dtype, raw->data, std::ssize(values), values.data());
  return values;
}

}  // namespace

Result<std::vector<std::vector<float>>> LoadConstants(const ModelSource& source,
                                                      const DecoderDeclaration& declares) {
  std::vector<std::vector<float>> tables;
  for (const DeclaredConstant& constant : declares.constants) {
    std::vector<float> values;
    if (!constant.tensor.empty()) {
      ASSIGN_OR_RETURN(values, ReadTensor(source, constant.tensor, constant.tensor_shape));
    }
    if (constant.make) {
      ASSIGN_OR_RETURN(values, constant.make(values));
    }
    if (std::ssize(values) != Elements(constant.shape)) {
      return InvalidInput("constant {}: got {} elements, want {} (declared constants)", constant.name,
                          values.size(), Elements(constant.shape));
    }
    tables.push_back(std::move(values));
  }
  return tables;
}

std::vector<std::string> ConstantTensors(const DecoderDeclaration& declares) {
  std::vector<std::string> names;
  for (const DeclaredConstant& constant : declares.constants) {
    if (!constant.tensor.empty()) names.push_back(constant.tensor);
  }
  return names;
}

}  // namespace plumbline
