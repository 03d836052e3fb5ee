// Where a tensor lives: the host, or one rank. On a CPU both are memory; the distinction is the contract's
// and is checked, so that nothing reads on the host what only a rank has.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "plumbline/base/check.h"

namespace plumbline {

class DeviceRef {
 public:
  static constexpr DeviceRef Host() { return DeviceRef(-1); }
  static constexpr DeviceRef Rank(int rank) { return DeviceRef(rank); }
  constexpr DeviceRef() = default;  // the host

  constexpr bool is_host() const { return rank_ < 0; }
  int rank() const {
    PLUMBLINE_CHECK(!is_host());
    return rank_;
  }
  friend constexpr bool operator==(DeviceRef, DeviceRef) = default;

 private:
  explicit constexpr DeviceRef(int rank) : rank_(rank) {}
  int32_t rank_ = -1;
};

inline std::string ToString(DeviceRef device) {
  return device.is_host() ? "host" : fmt::format("rank {}", device.rank());
}

}  // namespace plumbline
