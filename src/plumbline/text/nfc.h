// Unicode normalisation form C (https://unicode.org/reports/tr15).
#pragma once

#include <string>
#include <string_view>

namespace plumbline {

// `text` is well-formed UTF-8. Composites and combining classes are those of Unicode 9, which `tokenizers`
// uses: marks that came later stay where they are.
std::string NormalizeNfc(std::string_view text);

}  // namespace plumbline
