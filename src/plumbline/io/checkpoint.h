// A checkpoint on disk, whatever its format: a GGUF file, or a Hugging Face directory (config.json, one or
// several safetensors files). Tensor names and configuration stay as the format has them;
// src/plumbline/models translates.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/io/gguf.h"
#include "plumbline/io/mapped_file.h"
#include "plumbline/tensor/raw_tensor.h"

namespace plumbline {

class Checkpoint {
 public:
  // `path` is a .gguf file (by its magic, not its name) or a directory: config.json (a JSON object) and
  // model.safetensors, or the shards that model.safetensors.index.json names. An index must find each of its
  // tensors in the shard it names, a shard name must be a plain file name, and a tensor may be in one shard
  // only. What is missing, damaged or of a kind that is not read (split GGUF, .bin weights) is an
  // InvalidInput error.
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  bool is_gguf() const { return gguf_.has_value(); }
  const GgufFile& gguf() const { return *gguf_; }           // is_gguf()
  const nlohmann::json& config() const { return config_; }  // !is_gguf(): config.json, an object

  // A companion file of a Hugging Face directory (tokenizer.json, ...), if it exists. A GGUF file has none.
  // `name` is a plain file name.
  Result<std::optional<std::string>> ReadCompanion(std::string_view name) const;

  // They point into the mapped files, which live as long as the checkpoint.
  const std::map<std::string, RawTensor, std::less<>>& tensors() const { return tensors_; }
  const RawTensor* FindTensor(std::string_view name) const;  // null if absent

  int64_t file_bytes() const;  // of all weight files
  // SHA-256 of the weight files' bytes, in name order for several. Reads them all.
  std::string Sha256Hex() const;
  void DropPages() const;
  // Frees metadata, configuration and the table of tensors once a model is loaded: only path, size and digest
  // remain.
  void ForgetContents();

 private:
  Checkpoint() = default;
  Status OpenGguf(MappedFile file);
  Status OpenDirectory();
  Status AddSafetensors(const std::string& file_name);
  Status AddShards(const std::string& index_text);

  std::string path_;
  std::vector<MappedFile> files_;  // in name order
  std::optional<GgufFile> gguf_;
  nlohmann::json config_;
  std::map<std::string, RawTensor, std::less<>> tensors_;
};

}  // namespace plumbline
