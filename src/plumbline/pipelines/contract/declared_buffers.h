// The buffers of a step's inputs, each declared at its largest size and allocated once, at its first view
// (decoder contract, section 5.5). A view is the beginning of its buffer, so its address never changes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/pipelines/contract/input_tensor.h"
#include "plumbline/tensor/buffer.h"

namespace plumbline {

class DeclaredBuffers {
 public:
  // Allocates nothing. Declaring the same again changes nothing; another dtype, shape or device under the
  // same name is refused.
  Status Declare(std::string_view name, DType dtype, const InputShape& largest, DeviceRef device);

  // Refuses a name that was not declared; more elements than declared are Failed, for a bound was wrong, and
  // never grow the buffer. Elements keep what an earlier view wrote.
  Result<InputTensor> View(std::string_view name, const InputShape& shape);

  int64_t allocations() const { return allocations_; }

 private:
  struct Entry {
    std::string name;
    DType dtype = DType::kF32;
    InputShape largest;
    DeviceRef device;
    Buffer buffer;
    bool allocated = false;
  };
  Entry* Find(std::string_view name);

  std::vector<Entry> entries_;
  int64_t allocations_ = 0;
};

}  // namespace plumbline
