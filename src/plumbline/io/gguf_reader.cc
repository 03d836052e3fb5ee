#include "plumbline/io/gguf_reader.h"

#include <limits>
#include <type_traits>

#include "plumbline/io/quote.h"

namespace plumbline {
namespace {

enum ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// Far above any vocabulary; keeps an array of bytes from growing eightfold without bound.
constexpr uint64_t kMaxArrayElements = uint64_t{1} << 24;
constexpr size_t kMaxKeyBytes = 65535;    // GGUF's own limit
constexpr size_t kMinMetadataBytes = 14;  // key length 8, key 1, type 4, value 1

// Calls fn with a zero of the C++ type that holds scalars of `type`, or returns false.
template <typename Fn>
bool WithScalarType(uint32_t type, Fn&& fn) {
  switch (type) {
    case kUint8:
      return fn(uint8_t{}), true;
    case kInt8:
      return fn(int8_t{}), true;
    case kUint16:
      return fn(uint16_t{}), true;
    case kInt16:
      return fn(int16_t{}), true;
    case kUint32:
      return fn(uint32_t{}), true;
    case kInt32:
      return fn(int32_t{}), true;
    case kFloat32:
      return fn(float{}), true;
    case kUint64:
      return fn(uint64_t{}), true;
    case kInt64:
      return fn(int64_t{}), true;
    case kFloat64:
      return fn(double{}), true;
    default:
      return false;
  }
}

Result<bool> ReadBool(GgufReader& reader) {
  ASSIGN_OR_RETURN(const uint8_t byte, reader.Read<uint8_t>("value"));
  if (byte > 1) return reader.Fault("value", "got byte {}, want 0 or 1 for a bool", byte);
  return byte == 1;
}

template <typename T>
Result<GgufValue> ReadScalar(GgufReader& reader) {
  ASSIGN_OR_RETURN(const T value, reader.Read<T>("value"));
  if constexpr (std::is_floating_point_v<T>) {
    return GgufValue{static_cast<double>(value)};
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return GgufValue{value};
  }
  return GgufValue{static_cast<int64_t>(value)};
}

// Refuses a count that the rest of the file cannot hold, before anything is allocated for it.
Status CheckArrayCount(const GgufReader& reader, uint64_t count, size_t element_bytes) {
  if (count > kMaxArrayElements) {
    return reader.Fault("array", "got {} elements, want at most {}", count, kMaxArrayElements);
  }
  if (count > reader.remaining() / element_bytes) {
    return reader.Fault("array", "got {} elements of at least {} bytes, want no more than the {} bytes left",
                        count, element_bytes, reader.remaining());
  }
  return {};
}

template <typename T>
Result<GgufValue> ReadNumbers(GgufReader& reader, uint64_t count) {
  RETURN_IF_ERROR(CheckArrayCount(reader, count, sizeof(T)));
  using Wide = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
  std::vector<Wide> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const T value, reader.Read<T>("array"));
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return reader.Fault("array", "got element {}, want at most 2^63 - 1", value);
      }
    }
    values.push_back(static_cast<Wide>(value));
  }
  return GgufValue{std::move(values)};
}

Result<GgufValue> ReadBools(GgufReader& reader, uint64_t count) {
  RETURN_IF_ERROR(CheckArrayCount(reader, count, 1));
  std::vector<int64_t> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const bool value, ReadBool(reader));
    values.push_back(value ? 1 : 0);
  }
  return GgufValue{std::move(values)};
}

Result<GgufValue> ReadStrings(GgufReader& reader, uint64_t count) {
  RETURN_IF_ERROR(CheckArrayCount(reader, count, sizeof(uint64_t)));
  const GgufStrings strings(reader.position(), count);
  for (uint64_t i = 0; i < count; ++i) RETURN_IF_ERROR(reader.ReadString("array element"));
  return GgufValue{strings};
}

Result<GgufValue> ReadArray(GgufReader& reader) {
  ASSIGN_OR_RETURN(const uint32_t type, reader.Read<uint32_t>("array element type"));
  ASSIGN_OR_RETURN(const uint64_t count, reader.Read<uint64_t>("array length"));
  if (type == kString) return ReadStrings(reader, count);
  if (type == kBool) return ReadBools(reader, count);
  if (type == kArray) return reader.Fault("array", "got arrays as elements, want numbers, bools or strings");
  Result<GgufValue> value = GgufValue{};
  if (!WithScalarType(type, [&](auto zero) { value = ReadNumbers<decltype(zero)>(reader, count); })) {
    return reader.Fault("array element type", "got {}, want 0 to 12", type);
  }
  return value;
}

Result<GgufValue> ReadValue(GgufReader& reader) {
  ASSIGN_OR_RETURN(const uint32_t type, reader.Read<uint32_t>("value type"));
  if (type == kArray) return ReadArray(reader);
  if (type == kString) {
    ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString("value"));
    return GgufValue{std::string(text)};
  }
  if (type == kBool) {
    ASSIGN_OR_RETURN(const bool flag, ReadBool(reader));
    return GgufValue{flag};
  }
  Result<GgufValue> value = GgufValue{};
  if (!WithScalarType(type, [&](auto zero) { value = ReadScalar<decltype(zero)>(reader); })) {
    return reader.Fault("value type", "got {}, want 0 to 12", type);
  }
  return value;
}

}  // namespace

Result<std::string_view> GgufReader::ReadString(std::string_view field) {
  ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(field));
  if (length > remaining()) {
    return Fault(field, "got a length of {} bytes, want no more than the {} bytes left", length, remaining());
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + offset_, length);
  offset_ += length;
  return text;
}

Result<GgufMetadata> ReadGgufMetadata(GgufReader& reader, uint64_t count) {
  reader.set_subject("metadata");
  if (count > reader.remaining() / kMinMetadataBytes) {
    return reader.Fault("count", "got {}, want no more than the {} bytes left can hold", count,
                        reader.remaining());
  }
  GgufMetadata metadata;
  for (uint64_t i = 0; i < count; ++i) {
    reader.set_subject(fmt::format("metadata {} of {}", i, count));
    ASSIGN_OR_RETURN(const std::string_view key, reader.ReadString("key"));
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return reader.Fault("key", "got {} bytes, want 1 to {}", key.size(), kMaxKeyBytes);
    }
    reader.set_subject(fmt::format("metadata {}", Quote(key)));
    ASSIGN_OR_RETURN(GgufValue value, ReadValue(reader));
    if (!metadata.emplace(key, std::move(value)).second) {
      return reader.Fault("key", "got it twice, want unique keys");
    }
  }
  return metadata;
}

}  // namespace plumbline
