// A borrowed row-major matrix [rows, cols]; `stride` elements from one row to the next.
#pragma once

#include <cstdint>

namespace plumbline {

template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  MatrixView() = default;
  MatrixView(T* data_in, int64_t rows_in, int64_t cols_in) : MatrixView(data_in, rows_in, cols_in, cols_in) {}
  MatrixView(T* data_in, int64_t rows_in, int64_t cols_in, int64_t stride_in)
      : data(data_in), rows(rows_in), cols(cols_in), stride(stride_in) {}

  T* Row(int64_t row) const { return data + row * stride; }
  MatrixView Rows(int64_t begin, int64_t count) const { return {Row(begin), count, cols, stride}; }
  // NOLINTNEXTLINE(google-explicit-constructor): what may be written may be read.
  operator MatrixView<const T>() const { return {data, rows, cols, stride}; }
};

}  // namespace plumbline
