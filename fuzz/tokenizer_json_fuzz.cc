// A tokenizer.json of any bytes: an error, or a tokenizer that encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "plumbline/base/check.h"
#include "plumbline/text/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  auto spec = plumbline::ParseTokenizerJson(json, "fuzz");
  if (!spec.has_value()) return 0;
  auto tokenizer = plumbline::Tokenizer::Create(*std::move(spec));
  if (!tokenizer.has_value()) return 0;
  constexpr std::string_view kText = "The caf\u00e9's 12345 a  b\n\n<s> \xE4\xBD\xA0\xF0\x9F x <|im_end|> ab";
  const std::vector<int32_t> ids = (*tokenizer)->Encode(kText, true);
  for (const int32_t id : ids) PLUMBLINE_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
  (*tokenizer)->Decode(ids, size % 2 == 0);
  const std::vector<int32_t> any = {-1, 0, 1, 2, 3, 300, 1 << 30, 4, 5};
  (*tokenizer)->Decode(any, false);
  return 0;
}
