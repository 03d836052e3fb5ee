// What proves that two runs of a request gave the same answer.
#pragma once

#include <string>

#include "plumbline/pipelines/request.h"

namespace plumbline {

// SHA-256 of the float32 bytes (little endian) of the log-probs, the top log-probs' values and the max
// logits, in that order.
std::string ResultDigest(const RequestResult& result);

}  // namespace plumbline
