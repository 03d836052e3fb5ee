// One request of a step, as the batch processor sees it (decoder contract, section 5.1): the tokens so far,
// how many of them lie in the cache, and how many of the following ones run now.
#pragma once

#include <cstdint>
#include <span>

namespace plumbline {

struct TextContext {
  uint64_t request = 0;             // by which a RequestStateStore knows it
  std::span<const int32_t> tokens;  // the whole sequence so far, drafts to be verified included
  int64_t processed_length = 0;     // tokens in the KV cache
  int64_t active_length = 0;        // tokens that run in this step: at least 1
  std::span<const uint32_t> pages;  // ids of its KV pages, in order; page 0 is nobody's
  bool is_padding = false;          // fills a short replica (replica_padder.h): its outputs mean nothing

  int64_t current_position() const { return processed_length + active_length; }
  std::span<const int32_t> active() const { return tokens.subspan(processed_length, active_length); }
};

using ReplicaBatch = std::span<const TextContext>;

}  // namespace plumbline
