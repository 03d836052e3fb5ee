// safetensors (https://huggingface.co/docs/safetensors): an 8-byte header length, a JSON header, tensor
// bytes.
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

// The tensors of one file, in the order of their bytes; they point into `bytes`. As the format asks, the
// tensors cover the data exactly: each offset is inside the file, there is no overlap, no hole and nothing
// after the last tensor, and size = shape x dtype. Types F32, F16, BF16, I32, I64, U8 and U32; another type,
// a duplicate name, a field that the format does not have, or JSON that is not strict is an InvalidInput
// error, as is any other fault.
Result<std::vector<RawTensor>> ParseSafetensors(std::span<const uint8_t> bytes, std::string_view where);

// Writes a file whose tensors' shapes are known up front and whose rows arrive in any order. Nothing is left
// behind under `path` unless Close succeeds (a temporary file beside it is renamed).
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    DType dtype = DType::kF32;  // a plain type
    std::vector<int64_t> shape;
  };
  // Names must be unique, not "__metadata__" and, like the metadata, UTF-8. Every tensor starts at a multiple
  // of its element size, the first at a multiple of 8; bytes never written are zero.
  static Result<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, std::vector<Tensor> tensors,
      const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();  // removes the temporary file if Close did not succeed
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Bytes of tensor `index` from `byte_offset` on, inside the tensor. A full disk is an error. Several
  // threads may write at once.
  Status Write(size_t index, int64_t byte_offset, std::span<const uint8_t> bytes);
  // Once, after the last Write: the file is on the disk, complete, under its own name.
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
