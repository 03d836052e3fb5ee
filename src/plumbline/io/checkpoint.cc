#include "plumbline/io/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "plumbline/base/sha256.h"
#include "plumbline/io/quote.h"
#include "plumbline/io/safetensors.h"

namespace plumbline {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kWeights = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr size_t kMaxTextBytes = size_t{1} << 28;  // of a companion file
constexpr size_t kMaxJsonBytes = size_t{1}
                                 << 25;  // parsed here: a tree of brackets alone is 60 times its text

std::string Join(const std::string& directory, std::string_view name) {
  return (std::filesystem::path(directory) / name).string();
}

bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

bool Exists(const std::string& path) {
  std::error_code code;
  return std::filesystem::exists(path, code);
}

// Empty where the file does not exist.
Result<std::optional<std::string>> ReadText(const std::string& path) {
  if (!Exists(path)) return std::nullopt;
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::span<const uint8_t> bytes = file.bytes();
  if (bytes.size() > kMaxTextBytes) {
    return InvalidInput("file: got {} bytes, want at most {} ({})", bytes.size(), kMaxTextBytes, path);
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<Json> ParseObject(const std::string& text, const std::string& path) {
  if (text.size() > kMaxJsonBytes) {
    return InvalidInput("file: got {} bytes, want at most {} ({})", text.size(), kMaxJsonBytes, path);
  }
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return InvalidInput("file: got invalid JSON, want a JSON object ({})", path);
  if (!json.is_object()) return InvalidInput("file: got {}, want a JSON object ({})", json.type_name(), path);
  return json;
}

// Why a directory without model.safetensors and without an index is not a checkpoint, by what it has instead.
std::unexpected<Error> MissingWeights(const std::string& directory) {
  std::string torch;
  std::string gguf;
  std::string safetensors;
  std::error_code code;
  for (std::filesystem::directory_iterator it(directory, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) torch = name;
    if (name.ends_with(".gguf")) gguf = name;
    if (name.ends_with(".safetensors")) safetensors = name;
  }
  const std::string want = fmt::format("{} or {}", kWeights, kIndex);
  if (!safetensors.empty()) {
    return InvalidInput("weights: got {} without an index, want {} ({})", Quote(safetensors), want,
                        directory);
  }
  if (!gguf.empty()) {
    return InvalidInput("checkpoint: got a directory, want the path of {} itself, or {} in it ({})",
                        Quote(gguf), want, directory);
  }
  if (!torch.empty()) {
    return InvalidInput("weights: got {}, which is not read, want them as safetensors: {} ({})", Quote(torch),
                        want, directory);
  }
  return InvalidInput("weights: got none, want {} ({})", want, directory);
}

Result<std::map<std::string, std::string>> ReadWeightMap(const std::string& text, const std::string& path) {
  ASSIGN_OR_RETURN(const Json index, ParseObject(text, path));
  const auto entries = index.find("weight_map");
  if (entries == index.end() || !entries->is_object() || entries->empty()) {
    return InvalidInput("weight_map: got nothing, want an object of tensor names and file names ({})", path);
  }
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, shard] : entries->items()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get_ref<const std::string&>())) {
      return InvalidInput(
          "weight_map {}: got {}, want the name of a file in the same directory ({})", Quote(tensor),
          shard.is_string() ? Quote(shard.get_ref<const std::string&>()) : shard.type_name(), path);
    }
    weight_map.emplace(tensor, shard.get_ref<const std::string&>());
  }
  return weight_map;
}

bool Contains(const MappedFile& file, const RawTensor& tensor) {
  const auto* data = static_cast<const uint8_t*>(tensor.data);
  const std::span<const uint8_t> bytes = file.bytes();
  return !std::less<>()(data, bytes.data()) && !std::greater<>()(data, bytes.data() + bytes.size());
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->path_ = path;
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    RETURN_IF_ERROR(checkpoint->OpenDirectory());
  } else {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    RETURN_IF_ERROR(checkpoint->OpenGguf(std::move(file)));
  }
  return checkpoint;
}

Status Checkpoint::OpenGguf(MappedFile file) {
  const std::span<const uint8_t> bytes = file.bytes();
  if (bytes.size() < 4 ||
      (std::memcmp(bytes.data(), "GGUF", 4) != 0 && std::memcmp(bytes.data(), "FUGG", 4) != 0)) {
    return InvalidInput(
        "checkpoint: got a file that is not GGUF, want a .gguf file or a directory with {} and {} ({})",
        kConfig, kWeights, path_);
  }
  ASSIGN_OR_RETURN(gguf_, GgufFile::Parse(bytes, path_));
  ASSIGN_OR_RETURN(const int64_t splits, gguf_->GetIntOr("split.count", 1));
  if (splits > 1) {
    return InvalidInput("metadata 'split.count': got {}, want one whole file: merge the splits ({})", splits,
                        path_);
  }
  for (const RawTensor& tensor : gguf_->tensors()) tensors_.emplace(tensor.name, tensor);
  files_.push_back(std::move(file));
  return {};
}

Status Checkpoint::OpenDirectory() {
  const std::string config_path = Join(path_, kConfig);
  ASSIGN_OR_RETURN(const std::optional<std::string> config, ReadText(config_path));
  const bool whole = Exists(Join(path_, kWeights));
  ASSIGN_OR_RETURN(const std::optional<std::string> index, ReadText(Join(path_, kIndex)));
  if (!whole && !index.has_value()) return MissingWeights(path_);
  if (!config.has_value())
    return InvalidInput("{}: got nothing, want the model's configuration ({})", kConfig, path_);
  ASSIGN_OR_RETURN(config_, ParseObject(*config, config_path));
  return whole ? AddSafetensors(std::string(kWeights)) : AddShards(*index);
}

Status Checkpoint::AddSafetensors(const std::string& file_name) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(Join(path_, file_name)));
  ASSIGN_OR_RETURN(std::vector<RawTensor> tensors, ParseSafetensors(file.bytes(), file.path()));
  for (RawTensor& tensor : tensors) {
    std::string name = tensor.name;
    if (!tensors_.emplace(name, std::move(tensor)).second) {
      return InvalidInput("tensor {}: got it a second time, want it in one shard only ({})", Quote(name),
                          file.path());
    }
  }
  files_.push_back(std::move(file));
  return {};
}

Status Checkpoint::AddShards(const std::string& index_text) {
  const std::string index_path = Join(path_, kIndex);
  ASSIGN_OR_RETURN(const auto weight_map, ReadWeightMap(index_text, index_path));
  std::map<std::string, size_t> shards;  // name -> position in files_, which this makes name order
  for (const auto& [tensor, shard] : weight_map) shards.emplace(shard, 0);
  for (auto& [shard, position] : shards) {
    position = files_.size();
    RETURN_IF_ERROR(AddSafetensors(shard));
  }
  for (const auto& [name, shard] : weight_map) {
    const RawTensor* tensor = FindTensor(name);
    if (tensor == nullptr || !Contains(files_[shards[shard]], *tensor)) {
      return InvalidInput("tensor {}: got no such tensor in {}, want it where weight_map says ({})",
                          Quote(name), Quote(shard), index_path);
    }
  }
  return {};
}

Result<std::optional<std::string>> Checkpoint::ReadCompanion(std::string_view name) const {
  if (!IsPlainFileName(name)) {
    return InvalidInput("companion file: got {}, want a plain file name ({})", Quote(name), path_);
  }
  if (is_gguf()) return std::nullopt;
  return ReadText(Join(path_, name));
}

const RawTensor* Checkpoint::FindTensor(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

int64_t Checkpoint::file_bytes() const {
  int64_t bytes = 0;
  for (const MappedFile& file : files_) bytes += static_cast<int64_t>(file.bytes().size());
  return bytes;
}

std::string Checkpoint::Sha256Hex() const {
  constexpr size_t kChunk = size_t{1} << 20;
  Sha256 hash;
  for (const MappedFile& file : files_) {
    const std::span<const uint8_t> bytes = file.bytes();
    for (size_t begin = 0; begin < bytes.size(); begin += kChunk) {
      const size_t size = std::min(kChunk, bytes.size() - begin);
      hash.Update(bytes.data() + begin, size);
      // Hashing a large file must not make all of it resident.
      file.DropPages(static_cast<int64_t>(begin), static_cast<int64_t>(size));
    }
  }
  return hash.HexDigest();
}

void Checkpoint::DropPages() const {
  for (const MappedFile& file : files_) file.DropPages();
}

void Checkpoint::ForgetContents() {
  gguf_.reset();
  config_ = nlohmann::json();
  tensors_.clear();
}

}  // namespace plumbline
