// The two things a decoder's input can be: a tensor of a step (InputTensor), and what is promised about it
// beforehand (InputSpec).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/base/check.h"
#include "plumbline/base/dtype.h"
#include "plumbline/pipelines/contract/device_ref.h"

namespace plumbline {

inline constexpr int kMaxInputRank = 8;

// Sizes held in place: describing a step's tensors allocates nothing.
class InputShape {
 public:
  InputShape() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a shape is written as a list of sizes.
  InputShape(std::initializer_list<int64_t> sizes) : InputShape(std::span(sizes.begin(), sizes.size())) {}
  explicit InputShape(std::span<const int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
    PLUMBLINE_CHECK(rank_ <= kMaxInputRank);
    for (int i = 0; i < rank_; ++i) sizes_[i] = sizes[i];
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return sizes_[i]; }
  std::span<const int64_t> sizes() const { return {sizes_.data(), static_cast<size_t>(rank_)}; }
  int64_t Elements() const {
    int64_t elements = 1;
    for (int64_t size : sizes()) elements *= size;
    return elements;
  }
  friend bool operator==(const InputShape& a, const InputShape& b) {
    return a.rank_ == b.rank_ && a.sizes_ == b.sizes_;
  }

 private:
  std::array<int64_t, kMaxInputRank> sizes_{};
  int rank_ = 0;
};

// A dense row-major tensor that someone else owns. `data` is null for a buffer that only another rank has,
// and may be null where there are no elements.
struct InputTensor {
  DType dtype = DType::kF32;
  InputShape shape;
  void* data = nullptr;
  DeviceRef device;

  template <typename T>
  std::span<T> As() const {
    return {static_cast<T*>(data), static_cast<size_t>(shape.Elements())};
  }
  int64_t Bytes() const { return ByteSize(dtype, shape.Elements()); }
  friend bool operator==(const InputTensor&, const InputTensor&) = default;
};

// A dimension: a number, or a name that has the same size wherever a step uses it.
struct Dim {
  // NOLINTBEGIN(google-explicit-constructor): a spec is written as a list of numbers and names.
  Dim(int64_t size) : size(size) {}
  Dim(int size) : size(size) {}
  Dim(std::string_view name) : name(name) {}
  Dim(const char* name) : name(name) {}
  Dim(std::string name) : name(std::move(name)) {}
  // NOLINTEND(google-explicit-constructor)

  bool is_named() const { return !name.empty(); }
  int64_t size = 0;  // where not named
  std::string name;
  friend bool operator==(const Dim&, const Dim&) = default;
};

// Who brings a tensor to a rank.
enum class Residence : uint8_t {
  kCarried,    // the controller fills it each step; the step's message carries it to every rank
  kRankLocal,  // bound once on the rank that `device` names; other ranks see it unbound
};

struct InputSpec {
  DType dtype = DType::kF32;
  std::vector<Dim> shape;
  DeviceRef device;
  Residence residence = Residence::kCarried;
  friend bool operator==(const InputSpec&, const InputSpec&) = default;
};

std::string ToString(const InputShape& shape);        // "[3, 4]"
std::string ToString(const std::vector<Dim>& shape);  // "[total_seq_len, 4]"
std::string ToString(const InputTensor& tensor);      // "i64 [3] on rank 0"
std::string ToString(const InputSpec& spec);          // "i64 [total_seq_len] on rank 0"

}  // namespace plumbline
