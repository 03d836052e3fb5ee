#include <limits>
#include <type_traits>

#include "plumbline/io/gguf.h"
#include "plumbline/io/quote.h"

namespace plumbline {
namespace {

template <typename T>
constexpr std::string_view kKind = "";
template <>
constexpr std::string_view kKind<int64_t> = "an integer";
template <>
constexpr std::string_view kKind<uint64_t> = "an integer of 2^63 or more";
template <>
constexpr std::string_view kKind<double> = "a float";
template <>
constexpr std::string_view kKind<bool> = "a bool";
template <>
constexpr std::string_view kKind<std::string> = "a string";
template <>
constexpr std::string_view kKind<std::vector<int64_t>> = "an array of integers";
template <>
constexpr std::string_view kKind<std::vector<double>> = "an array of floats";
template <>
constexpr std::string_view kKind<GgufStrings> = "an array of strings";

std::string_view KindOf(const GgufValue& value) {
  return std::visit([](const auto& held) { return kKind<std::decay_t<decltype(held)>>; }, value.value);
}

using Metadata = std::map<std::string, GgufValue, std::less<>>;

// Null where the key is absent.
template <typename T>
Result<const T*> Find(const Metadata& metadata, std::string_view key, std::string_view where) {
  const auto it = metadata.find(key);
  if (it == metadata.end()) return nullptr;
  const T* held = std::get_if<T>(&it->second.value);
  if (held == nullptr) {
    return InvalidInput("metadata {}: got {}, want {} ({})", Quote(key), KindOf(it->second), kKind<T>, where);
  }
  return held;
}

template <typename T>
Result<T> Get(const Metadata& metadata, std::string_view key, std::string_view where) {
  ASSIGN_OR_RETURN(const T* held, Find<T>(metadata, key, where));
  if (held == nullptr)
    return InvalidInput("metadata {}: got nothing, want {} ({})", Quote(key), kKind<T>, where);
  return *held;
}

template <typename T>
Result<T> GetOr(const Metadata& metadata, std::string_view key, std::string_view where, T otherwise) {
  ASSIGN_OR_RETURN(const T* held, Find<T>(metadata, key, where));
  return held == nullptr ? std::move(otherwise) : *held;
}

}  // namespace

const RawTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

Result<std::string> GgufFile::GetString(std::string_view key) const {
  return Get<std::string>(metadata_, key, where_);
}
Result<int64_t> GgufFile::GetInt(std::string_view key) const { return Get<int64_t>(metadata_, key, where_); }
Result<double> GgufFile::GetFloat(std::string_view key) const { return Get<double>(metadata_, key, where_); }
Result<int64_t> GgufFile::GetIntOr(std::string_view key, int64_t otherwise) const {
  return GetOr(metadata_, key, where_, otherwise);
}
Result<double> GgufFile::GetFloatOr(std::string_view key, double otherwise) const {
  return GetOr(metadata_, key, where_, otherwise);
}
Result<bool> GgufFile::GetBoolOr(std::string_view key, bool otherwise) const {
  return GetOr(metadata_, key, where_, otherwise);
}
Result<std::string> GgufFile::GetStringOr(std::string_view key, std::string otherwise) const {
  return GetOr(metadata_, key, where_, std::move(otherwise));
}
Result<GgufStrings> GgufFile::GetStrings(std::string_view key) const {
  return Get<GgufStrings>(metadata_, key, where_);
}
Result<std::vector<int64_t>> GgufFile::GetInts(std::string_view key) const {
  return Get<std::vector<int64_t>>(metadata_, key, where_);
}
Result<std::vector<double>> GgufFile::GetFloats(std::string_view key) const {
  return Get<std::vector<double>>(metadata_, key, where_);
}

}  // namespace plumbline
