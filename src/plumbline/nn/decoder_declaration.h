// What a decoder takes in a step beside tokens, offsets and KV pages (decoder contract, section 7). Part of
// its configuration: a family says it in its own file, and pipelines/declared_step.cc makes the batch
// processor, its buffers and the ranks' inputs from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plumbline/base/dtype.h"

namespace plumbline {

// Memory [total_seq_len, per_token] on every rank, the same each step; what it holds means nothing in the
// next.
struct DeclaredScratch {
  std::string name;
  DType dtype = DType::kF32;
  int64_t per_token = 1;
};

struct DecoderDeclaration {
  bool takes_token_positions = true;
  bool takes_batch_context_lengths = false;  // one a replica, i32 on the host
  // Then the context lengths are of this dtype (i32 or i64) and on the ranks, one each.
  std::optional<DType> device_context_length_dtype;
  std::vector<DeclaredScratch> scratch;
};

}  // namespace plumbline
