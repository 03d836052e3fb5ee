// Text from a file made safe for a one-line error message.
#pragma once

#include <string>
#include <string_view>

namespace plumbline {

// 'text' in single quotes; control and non-ASCII bytes as \xNN, cut after 80 bytes.
std::string Quote(std::string_view text);

}  // namespace plumbline
