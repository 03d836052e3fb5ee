#include "plumbline/cli/hidden_states_file.h"

#include <utility>

namespace plumbline::cli {
namespace {

std::vector<std::string> TensorSuffixes(ReturnHiddenStates mode, std::span<const int32_t> layers) {
  if (mode == ReturnHiddenStates::kLastPerDevice) return {"last.device0"};
  if (mode != ReturnHiddenStates::kSelectedLayers) return {std::string(Name(mode))};
  std::vector<std::string> suffixes;
  for (int32_t layer : layers) suffixes.push_back(fmt::format("layer{}", layer));
  return suffixes;
}

}  // namespace

Result<std::unique_ptr<HiddenStatesFile>> HiddenStatesFile::Create(const std::string& path,
                                                                   ReturnHiddenStates mode,
                                                                   std::span<const int32_t> layers,
                                                                   int64_t hidden,
                                                                   std::span<const ScoreDocument> documents) {
  auto file = std::make_unique<HiddenStatesFile>();
  file->last_only_ = mode == ReturnHiddenStates::kLast || mode == ReturnHiddenStates::kLastPerDevice;
  const std::vector<std::string> suffixes = TensorSuffixes(mode, layers);
  file->tensors_per_document_ = suffixes.size();
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const ScoreDocument& document : documents) {
    const int64_t length = static_cast<int64_t>(document.tokens.size());
    file->lengths_.push_back(length);
    for (const std::string& suffix : suffixes) {
      tensors.push_back({.name = fmt::format("{}.{}", document.id, suffix),
                         .dtype = DType::kF32,
                         .shape = {file->last_only_ ? 1 : length, hidden}});
    }
  }
  ASSIGN_OR_RETURN(file->writer_, SafetensorsWriter::Create(path, std::move(tensors), {{"format", "pt"}}));
  return file;
}

Status HiddenStatesFile::Write(size_t document, int64_t first_row,
                               std::span<const MatrixView<const float>> states) {
  if (last_only_ && first_row != lengths_[document] - 1)
    return {};  // the last row of a chunk before the last
  for (size_t i = 0; i < states.size(); ++i) {
    const MatrixView<const float>& rows = states[i];
    const int64_t row_bytes = rows.cols * static_cast<int64_t>(sizeof(float));
    for (int64_t row = 0; row < rows.rows; ++row) {
      const int64_t at = last_only_ ? 0 : (first_row + row) * row_bytes;
      RETURN_IF_ERROR(
          writer_->Write(document * tensors_per_document_ + i, at,
                         {reinterpret_cast<const uint8_t*>(rows.Row(row)), static_cast<size_t>(row_bytes)}));
    }
  }
  return {};
}

}  // namespace plumbline::cli
