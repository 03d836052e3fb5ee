// A borrowed tensor as a checkpoint stores it: GGUF blocks or plain elements, row-major, the last
// dimension contiguous. What loaders hand to the kernels' packers. A rank's part of a weight is a view of the
// whole: only what it covers is ever read.
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
  int64_t row_bytes = 0;       // from one row to the next, where columns were cut off; 0: rows are dense

  int64_t Elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }

  // Of a matrix: from one row to the next.
  int64_t RowBytes() const { return row_bytes > 0 ? row_bytes : ByteSize(dtype, shape[1]); }

  // Rows [begin, end), and columns [begin, end) (cut between quantisation blocks), of a matrix.
  RawTensor Rows(int64_t begin, int64_t end) const {
    RawTensor part = *this;
    part.shape[0] = end - begin;
    part.data = static_cast<const char*>(data) + begin * RowBytes();
    return part;
  }
  RawTensor Columns(int64_t begin, int64_t end) const {
    RawTensor part = *this;
    part.row_bytes = RowBytes();
    part.shape[1] = end - begin;
    part.data = static_cast<const char*>(data) + ByteSize(dtype, begin);
    return part;
  }
};

}  // namespace plumbline
