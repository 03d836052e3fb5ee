// A borrowed tensor as a checkpoint stores it: GGUF blocks or plain elements, row-major, the last
// dimension contiguous. What loaders hand to the kernels' packers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/base/dtype.h"

namespace plumbline {

struct RawTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // outermost first, as in PyTorch: a weight is [out_features, in_features]
  const void* data = nullptr;  // not necessarily aligned

  int64_t Elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
};

}  // namespace plumbline
