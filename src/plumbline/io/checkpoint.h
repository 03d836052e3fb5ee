// A checkpoint on disk, whatever its format: a GGUF file, or a Hugging Face directory (config.json, one or several
// safetensors files). Tensor names and configuration stay as the format has them; src/plumbline/models translates.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "plumbline/base/status.h"
#include "plumbline/io/gguf.h"
#include "plumbline/io/mapped_file.h"
#include "plumbline/tensor/raw_tensor.h"

namespace plumbline {

class Checkpoint {
 public:
  // `path` is a .gguf file (by its magic, not its name) or a directory.
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  bool is_gguf() const { return gguf_.has_value(); }
  const GgufFile& gguf() const { return *gguf_; }           // is_gguf()
  const nlohmann::json& config() const { return config_; }  // !is_gguf(): config.json, an object

  // A companion file of a Hugging Face directory (tokenizer.json, ...), if it exists.
  Result<std::optional<std::string>> ReadCompanion(std::string_view name) const;

  const std::map<std::string, RawTensor, std::less<>>& tensors() const { return tensors_; }
  const RawTensor* FindTensor(std::string_view name) const;

  int64_t file_bytes() const;  // of all weight files
  // SHA-256 of the weight files' bytes, in name order for several.
  std::string Sha256Hex() const;
  void DropPages() const;

 private:
  Checkpoint() = default;
  std::string path_;
  std::vector<MappedFile> files_;
  std::optional<GgufFile> gguf_;
  nlohmann::json config_;
  std::map<std::string, RawTensor, std::less<>> tensors_;
};

}  // namespace plumbline
