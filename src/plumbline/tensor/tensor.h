// An owned, dense, row-major tensor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/base/check.h"
#include "plumbline/base/dtype.h"
#include "plumbline/tensor/buffer.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

class Tensor {
 public:
  Tensor() = default;
  static Result<Tensor> Allocate(DType dtype, std::vector<int64_t> shape) {
    Tensor tensor;
    tensor.dtype_ = dtype;
    tensor.shape_ = std::move(shape);
    int64_t elements = 1;
    for (int64_t d : tensor.shape_) elements *= d;
    ASSIGN_OR_RETURN(tensor.buffer_, Buffer::Allocate(ByteSize(dtype, elements)));
    return tensor;
  }

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }

  template <typename T>
  std::span<T> As() {
    return buffer_.As<T>();
  }
  template <typename T>
  std::span<const T> As() const {
    return buffer_.As<T>();
  }
  // A rank-2 float32 tensor as a matrix.
  MatrixView<float> Matrix() {
    PLUMBLINE_CHECK(dtype_ == DType::kF32 && shape_.size() == 2);
    return {static_cast<float*>(buffer_.data()), shape_[0], shape_[1]};
  }
  MatrixView<const float> Matrix() const {
    PLUMBLINE_CHECK(dtype_ == DType::kF32 && shape_.size() == 2);
    return {static_cast<const float*>(buffer_.data()), shape_[0], shape_[1]};
  }

 private:
  DType dtype_ = DType::kF32;
  std::vector<int64_t> shape_;
  Buffer buffer_;
};

}  // namespace plumbline
