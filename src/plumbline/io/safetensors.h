// safetensors (https://huggingface.co/docs/safetensors): an 8-byte header length, a JSON header, tensor bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/tensor/raw_tensor.h"

namespace plumbline {

// The tensors of one file; every offset checked (inside the file, no overlap, size = shape x dtype).
Result<std::vector<RawTensor>> ParseSafetensors(std::span<const uint8_t> bytes, std::string_view where);

// Writes a file whose tensors' shapes are known up front and whose rows arrive in any order. Nothing is left behind
// under `path` unless Close succeeds (a temporary file beside it is renamed).
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
  };
  static Result<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path, std::vector<Tensor> tensors,
                                                           const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();  // removes the temporary file if Close was not called

  // Bytes of tensor `index` from `byte_offset` on. A full disk is an error.
  Status Write(size_t index, int64_t byte_offset, std::span<const uint8_t> bytes);
  Status Close();

 private:
  SafetensorsWriter() = default;
  std::string path_;
  std::string temporary_path_;
  int fd_ = -1;
  int64_t data_begin_ = 0;
  std::vector<int64_t> tensor_begin_;
  std::vector<int64_t> tensor_bytes_;
};

}  // namespace plumbline
