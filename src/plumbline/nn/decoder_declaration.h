// What a decoder takes in a step beside tokens, offsets and KV pages (decoder contract, section 7). Part of
// its configuration: a family says it in its own file, and pipelines/declared_step.cc makes the batch
// processor, its buffers and the ranks' inputs from it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/base/dtype.h"
#include "plumbline/base/status.h"

namespace plumbline {

// The parts that a deployment runs.
enum class Role : uint8_t {
  kDecoder,
  kVision,  // its embeddings come with every step, of no rows where there are no images
};

// Memory [total_seq_len, per_token] on every rank, the same each step; what it holds means nothing in the
// next.
struct DeclaredScratch {
  std::string name;
  DType dtype = DType::kF32;
  int64_t per_token = 1;
};

// A float32 table on every rank for as long as the model lives. The loader fills it.
struct DeclaredConstant {
  std::string name;
  std::vector<int64_t> shape;
  std::string tensor;                 // of the checkpoint, from which it is made; empty: none
  std::vector<int64_t> tensor_shape;  // its shape there
  // The table from the tensor's values (none without a tensor). Null: those values.
  std::function<Result<std::vector<float>>(std::span<const float> tensor)> make;
};

// Memory of `shape` for each request on every rank of its replica, from its admission until it is finished or
// cancelled; zero when its first row runs. The decoder updates it in place. Rows of such a decoder cannot be
// taken back or left out: there are no drafts, and no prefix is reused.
struct DeclaredState {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// Memory of `bytes` on every rank, zero when an engine begins and then the decoder's own from step to step:
// what a decoder signals by, beside its communicators.
struct DeclaredSignals {
  int64_t bytes = 0;
  bool on_one_rank = false;  // also where there is but one
};

struct DecoderDeclaration {
  std::vector<Role> roles = {Role::kDecoder};
  int64_t vision_hidden = 0;  // width of the VISION role's embeddings
  bool takes_token_positions = true;
  bool takes_host_inputs = false;            // offsets on the host and splits on one replica too
  bool takes_batch_context_lengths = false;  // one a replica, i32 on the host
  // Then the context lengths are of this dtype (i32 or i64) and on the ranks, one each.
  std::optional<DType> device_context_length_dtype;
  std::optional<DeclaredSignals> signals;
  std::vector<DeclaredScratch> scratch;
  std::vector<DeclaredConstant> constants;
  std::vector<DeclaredState> state;
};

// What a step brings of it on one rank, each list in the order of the declaration.
struct DeclaredViews {
  std::span<const std::span<const float>> constants;
  std::span<const std::span<std::byte>> scratch;
  std::span<std::byte> signals;  // this rank's
  // Pools [slots, shape], and the slot of each of the replica's sequences; slot 0 is padding's.
  std::span<const std::span<std::byte>> state;
  std::span<const uint32_t> state_slots;

  // The constant of this name; empty where none is declared.
  std::span<const float> Constant(const DecoderDeclaration& declares, std::string_view name) const {
    for (size_t i = 0; i < declares.constants.size() && i < constants.size(); ++i) {
      if (declares.constants[i].name == name) return constants[i];
    }
    return {};
  }
};

}  // namespace plumbline
