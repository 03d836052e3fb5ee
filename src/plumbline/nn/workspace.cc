#include "plumbline/nn/workspace.h"

#include <utility>

namespace plumbline {
namespace {

// Each matrix and its width, in the order they lie in the buffer.
template <typename Fn>
void ForEachMatrix(DecoderWorkspace& w, const DecoderConfig& c, Fn&& fn) {
  fn(w.hidden, c.hidden);
  fn(w.normed, c.hidden);
  fn(w.q, c.QueryWidth());
  fn(w.k, c.KvWidth());
  fn(w.v, c.KvWidth());
  fn(w.context, c.QueryWidth());
  fn(w.gate, c.intermediate);
  fn(w.up, c.intermediate);
  fn(w.cos, c.head_dim / 2);
  fn(w.sin, c.head_dim / 2);
}

int64_t AlignedWidth(int64_t width) { return (width + 15) / 16 * 16; }

}  // namespace

int64_t DecoderWorkspace::Bytes(const DecoderConfig& config, int64_t max_tokens) {
  DecoderWorkspace unused;
  int64_t floats = 0;
  ForEachMatrix(unused, config,
                [&](MatrixView<float>&, int64_t width) { floats += max_tokens * AlignedWidth(width); });
  return floats * static_cast<int64_t>(sizeof(float));
}

Result<DecoderWorkspace> DecoderWorkspace::Allocate(const DecoderConfig& config, int64_t max_tokens) {
  DecoderWorkspace workspace;
  workspace.max_tokens_ = max_tokens;
  ASSIGN_OR_RETURN(workspace.buffer_, Buffer::Allocate(Bytes(config, max_tokens)));
  float* next = static_cast<float*>(workspace.buffer_.data());
  ForEachMatrix(workspace, config, [&](MatrixView<float>& matrix, int64_t width) {
    matrix = {next, max_tokens, width, AlignedWidth(width)};
    next += max_tokens * AlignedWidth(width);
  });
  return workspace;
}

}  // namespace plumbline
