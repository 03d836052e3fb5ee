// Guessing the next tokens of a sequence from the sequence itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace plumbline {

// Prompt lookup: finds the most recent earlier place where the last 3 tokens stand (else the last 2, else the
// last one) and proposes the tokens that followed there, at most `limit`. `drafts` is replaced; it stays
// empty where no place is found.
void ProposeDrafts(std::span<const int32_t> tokens, int64_t limit, std::vector<int32_t>& drafts);

}  // namespace plumbline
