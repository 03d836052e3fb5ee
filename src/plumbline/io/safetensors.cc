#include "plumbline/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

#include "plumbline/io/quote.h"
#include "plumbline/io/safetensors_header.h"

namespace plumbline {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr uint64_t kMaxSize = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

// The bytes of an entry's shape and type, checked against overflow; fills the tensor but for its data.
Result<uint64_t> ReadShape(const SafetensorsEntry& entry, std::string_view where, RawTensor& tensor) {
  const std::optional<DType> dtype = SafetensorsDType(entry.dtype);
  if (!dtype.has_value()) {
    return InvalidInput("tensor {} dtype: got {}, want F32, F16, BF16, I32, I64, U8 or U32 ({})",
                        Quote(entry.name), Quote(entry.dtype), where);
  }
  tensor.name = entry.name;
  tensor.dtype = *dtype;
  uint64_t bytes = static_cast<uint64_t>(Info(*dtype).block_bytes);
  // A dimension of 0 must not hide the overflow of the others: they may be multiplied without it later.
  for (uint64_t dim : entry.shape) {
    if (dim > kMaxSize / bytes) {
      return InvalidInput("tensor {} shape: got a dimension of {}, want fewer than 2^63 bytes in all ({})",
                          Quote(entry.name), dim, where);
    }
    bytes *= std::max<uint64_t>(dim, 1);
    tensor.shape.push_back(static_cast<int64_t>(dim));
  }
  return std::ranges::count(entry.shape, 0u) > 0 ? 0 : bytes;
}

}  // namespace

Result<std::vector<RawTensor>> ParseSafetensors(std::span<const uint8_t> bytes, std::string_view where) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) {
    return InvalidInput("header length: got a file of {} bytes, want at least {} ({})", bytes.size(),
                        sizeof header_bytes, where);
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const std::span<const uint8_t> rest = bytes.subspan(sizeof header_bytes);
  if (header_bytes > std::min<uint64_t>(kMaxHeaderBytes, rest.size())) {
    return InvalidInput("header length: got {} bytes, want no more than the {} that follow and than {} ({})",
                        header_bytes, rest.size(), kMaxHeaderBytes, where);
  }
  const std::string_view json(reinterpret_cast<const char*>(rest.data()), header_bytes);
  ASSIGN_OR_RETURN(std::vector<SafetensorsEntry> entries, ParseSafetensorsHeader(json, where));
  // An empty tensor goes before the one that begins where it lies.
  std::ranges::sort(entries, {}, [](const SafetensorsEntry& entry) {
    return std::tuple(entry.begin, entry.end, std::string_view(entry.name));
  });

  const std::span<const uint8_t> data = rest.subspan(header_bytes);
  std::vector<RawTensor> tensors;
  tensors.reserve(entries.size());
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    RawTensor tensor;
    ASSIGN_OR_RETURN(const uint64_t size, ReadShape(entry, where, tensor));
    if (entry.begin > entry.end || entry.end > data.size()) {
      return InvalidInput(
          "tensor {} data_offsets: got [{}, {}), want a range inside the {} bytes of data ({})",
          Quote(entry.name), entry.begin, entry.end, data.size(), where);
    }
    if (entry.end - entry.begin != size) {
      return InvalidInput("tensor {} data_offsets: got {} bytes, want {} for its shape and {} ({})",
                          Quote(entry.name), entry.end - entry.begin, size, entry.dtype, where);
    }
    if (entry.begin != end) {
      return InvalidInput(
          "tensor {} data_offsets: got {} as its begin, want {}, where the tensor before it ends ({})",
          Quote(entry.name), entry.begin, end, where);
    }
    end = entry.end;
    tensor.data = data.data() + entry.begin;
    tensors.push_back(std::move(tensor));
  }
  if (end != data.size()) {
    return InvalidInput("data: got {} bytes after the last tensor, want none ({})", data.size() - end, where);
  }
  return tensors;
}

}  // namespace plumbline
