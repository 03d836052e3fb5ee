// Requests of `score -f`: any bytes are requests or one error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "plumbline/io/request_lines.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)plumbline::ParseRequestLines({reinterpret_cast<const char*>(data), size}, "fuzz");
  return 0;
}
