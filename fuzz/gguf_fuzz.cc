// Any bytes as a GGUF file: parsed or refused, and what is parsed lies inside the file.
#include <cstdint>
#include <cstdlib>

#include "plumbline/io/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const plumbline::Result<plumbline::GgufFile> file = plumbline::GgufFile::Parse({data, size}, "fuzz");
  if (!file.has_value()) return 0;
  unsigned sum = 0;
  for (const plumbline::RawTensor& tensor : file->tensors()) {
    const auto* begin = static_cast<const uint8_t*>(tensor.data);
    const int64_t bytes = plumbline::ByteSize(tensor.dtype, tensor.Elements());
    if (begin < data || bytes <= 0 || bytes > data + size - begin) std::abort();
    sum += begin[0] + begin[bytes - 1];
    if (file->FindTensor(tensor.name) != &tensor) std::abort();
  }
  for (const auto& [key, value] : file->metadata()) {
    sum += file->GetInt(key).has_value();
    const plumbline::Result<plumbline::GgufStrings> strings = file->GetStrings(key);
    if (!strings.has_value()) continue;
    for (const std::string_view string : *strings) sum += string.empty() ? 1 : string.front() + string.back();
  }
  volatile unsigned sink = sum;
  static_cast<void>(sink);
  return 0;
}
