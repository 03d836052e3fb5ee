// --hidden-states-out: float32 tensors in one safetensors file, named after the request.
//
//   last              <id>.last            [1, hidden]   before the final norm
//   last_per_device   <id>.last.device0    [1, hidden]
//   all               <id>.all             [tokens, hidden]
//   all_normalized    <id>.all_normalized  [tokens, hidden]
//   selected_layers   <id>.layer<i>        [tokens, hidden]   the residual stream after layer i
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plumbline/io/safetensors.h"
#include "plumbline/nn/distributed_logits_postprocess.h"
#include "plumbline/pipelines/score_requests.h"

namespace plumbline::cli {

class HiddenStatesFile {
 public:
  static Result<std::unique_ptr<HiddenStatesFile>> Create(const std::string& path, ReturnHiddenStates mode,
                                                          std::span<const int32_t> layers, int64_t hidden,
                                                          std::span<const ScoreDocument> documents);

  // As EngineListener::OnHiddenStates gives them.
  Status Write(size_t document, int64_t first_row, std::span<const MatrixView<const float>> states);
  Status Close() { return writer_->Close(); }

 private:
  std::unique_ptr<SafetensorsWriter> writer_;
  std::vector<int64_t> lengths_;  // tokens of each document
  size_t tensors_per_document_ = 1;
  bool last_only_ = false;
};

}  // namespace plumbline::cli
