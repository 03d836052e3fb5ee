// Any bytes as a safetensors file: parsed or refused, and what is parsed covers the file's data exactly.
#include <cstdint>
#include <cstdlib>

#include "plumbline/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensors = plumbline::ParseSafetensors({data, size}, "fuzz");
  if (!tensors.has_value()) return 0;
  unsigned sum = 0;
  const uint8_t* end = nullptr;
  for (const plumbline::RawTensor& tensor : *tensors) {
    const auto* begin = static_cast<const uint8_t*>(tensor.data);
    const int64_t bytes = plumbline::ByteSize(tensor.dtype, tensor.Elements());
    if (begin < data || bytes < 0 || bytes > data + size - begin) std::abort();
    if (end != nullptr && begin != end) std::abort();
    end = begin + bytes;
    if (bytes > 0) sum += begin[0] + begin[bytes - 1];
  }
  if (end != nullptr && end != data + size) std::abort();
  volatile unsigned sink = sum;
  static_cast<void>(sink);
  return 0;
}
