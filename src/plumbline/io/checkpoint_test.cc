#include "plumbline/io/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "plumbline/base/sha256.h"
#include "plumbline/io/safetensors.h"

namespace plumbline {
namespace {

namespace fs = std::filesystem;

constexpr char kTinyGguf[] = PLUMBLINE_SOURCE_DIR "/tests/golden/gguf/tiny.gguf";

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string name = (fs::temp_directory_path() / "plumbline_checkpoint_XXXXXX").string();
    directory_ = mkdtemp(name.data());
  }
  ~CheckpointTest() override { fs::remove_all(directory_); }

  std::string Path(std::string_view name) const { return (directory_ / name).string(); }

  std::string Put(std::string_view name, std::string_view text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
    return Path(name);
  }

  // A file with the named tensors, each one byte: `value`.
  void PutWeights(std::string_view name, const std::vector<std::string>& tensors, uint8_t value) const {
    std::vector<SafetensorsWriter::Tensor> list;
    for (const std::string& tensor : tensors) list.push_back({tensor, DType::kU8, {1}});
    const auto writer = SafetensorsWriter::Create(Path(name), list, {});
    ASSERT_TRUE(writer.has_value()) << writer.error().message;
    for (size_t i = 0; i < tensors.size(); ++i) ASSERT_TRUE((*writer)->Write(i, 0, {&value, 1}).has_value());
    ASSERT_TRUE((*writer)->Close().has_value());
  }

  std::string OpenError() const { return OpenError(directory_.string()); }
  static std::string OpenError(const std::string& path) {
    const auto checkpoint = Checkpoint::Open(path);
    if (checkpoint.has_value()) return "";
    EXPECT_EQ(checkpoint.error().code, ErrorCode::kInvalidInput);
    EXPECT_NE(checkpoint.error().message.find(path), std::string::npos) << checkpoint.error().message;
    return checkpoint.error().message;
  }

  fs::path directory_;
};

void ExpectContains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nwant: " << part;
}

std::string FileSha256(const std::vector<std::string>& paths) {
  Sha256 hash;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    hash.Update(bytes.data(), bytes.size());
  }
  return hash.HexDigest();
}

TEST_F(CheckpointTest, MappedFileRefusesWhatIsNotAReadableFile) {
  const auto error = [](const std::string& path) {
    const Result<MappedFile> file = MappedFile::Open(path);
    return file.has_value() ? std::string() : file.error().message;
  };
  EXPECT_EQ(error(Path("none")),
            "file: got No such file or directory, want a readable file (" + Path("none") + ")");
  EXPECT_EQ(error(directory_.string()), "file: got a directory, want a file (" + directory_.string() + ")");
  ExpectContains(error(Put("empty", "")), "got 0 bytes");
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  ExpectContains(error(Path("pipe")), "want a regular file");
}

TEST_F(CheckpointTest, MappedFileKeepsItsBytesWhenMovedAndAfterDroppingPages) {
  const std::string text(100000, 'x');
  Result<MappedFile> opened = MappedFile::Open(Put("file", text));
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  const uint8_t* data = opened->bytes().data();
  MappedFile file = std::move(*opened);
  EXPECT_EQ(file.bytes().data(), data);
  EXPECT_EQ(opened->bytes().size(), 0u);
  file.DropPages();
  file.DropPages(8192, 5000);
  EXPECT_EQ(std::string(file.bytes().begin(), file.bytes().end()), text);
  file = MappedFile();
  EXPECT_EQ(file.bytes().size(), 0u);
}

TEST_F(CheckpointTest, OpensAGgufFileByItsMagic) {
  fs::copy_file(kTinyGguf, Path("no_extension"));
  const auto checkpoint = Checkpoint::Open(Path("no_extension"));
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_TRUE((*checkpoint)->is_gguf());
  EXPECT_EQ((*checkpoint)->gguf().GetString("general.architecture").value(), "llama");
  EXPECT_EQ((*checkpoint)->tensors().size(), 13u);
  const RawTensor* tensor = (*checkpoint)->FindTensor("weight.q6_k");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (std::vector<int64_t>{2, 512}));
  EXPECT_EQ((*checkpoint)->file_bytes(), static_cast<int64_t>(fs::file_size(kTinyGguf)));
  EXPECT_EQ((*checkpoint)->Sha256Hex(), FileSha256({kTinyGguf}));
  (*checkpoint)->DropPages();
  EXPECT_EQ(static_cast<const uint8_t*>(tensor->data)[1], 7);
  EXPECT_FALSE((*checkpoint)->ReadCompanion("tokenizer.json").value().has_value());
}

TEST_F(CheckpointTest, RefusesOtherFilesAndSplitGguf) {
  ExpectContains(OpenError(Path("none")), "No such file");
  ExpectContains(OpenError(Put("text", "hello world")),
                 "got a file that is not GGUF, want a .gguf file or a directory");
  ExpectContains(OpenError(Put("short", "GG")), "got a file that is not GGUF");
  ExpectContains(OpenError(Put("damaged", "GGUF\x03")), "GGUF version: got the end of the file");
  constexpr char kSplit[] =
      "GGUF\x03\0\0\0"
      "\0\0\0\0\0\0\0\0"    // tensors
      "\x01\0\0\0\0\0\0\0"  // metadata
      "\x0b\0\0\0\0\0\0\0split.count"
      "\x02\0\0\0\x03\0";  // a 16-bit 3
  ExpectContains(OpenError(Put("split", {kSplit, sizeof kSplit - 1})),
                 "'split.count': got 3, want one whole file");
}

TEST_F(CheckpointTest, OpensADirectoryWithOneFile) {
  Put("config.json", R"({"model_type": "llama", "n": 3})");
  Put("tokenizer.json", "{}");
  PutWeights("model.safetensors", {"a", "b"}, 5);
  const auto checkpoint = Checkpoint::Open(directory_.string());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_FALSE((*checkpoint)->is_gguf());
  EXPECT_EQ((*checkpoint)->config().at("n"), 3);
  EXPECT_EQ((*checkpoint)->tensors().size(), 2u);
  EXPECT_EQ((*checkpoint)->FindTensor("c"), nullptr);
  EXPECT_EQ((*checkpoint)->ReadCompanion("tokenizer.json").value().value(), "{}");
  EXPECT_FALSE((*checkpoint)->ReadCompanion("vocab.json").value().has_value());
  EXPECT_FALSE((*checkpoint)->ReadCompanion("../secret").has_value());
}

TEST_F(CheckpointTest, OpensShardsAndHashesThemInNameOrder) {
  Put("config.json", "{}");
  PutWeights("s2", {"a"}, 2);
  PutWeights("s1", {"b", "c"}, 1);
  Put("model.safetensors.index.json", R"({"metadata": {}, "weight_map": {"a": "s2", "b": "s1", "c": "s1"}})");
  const auto checkpoint = Checkpoint::Open(directory_.string());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->tensors().size(), 3u);
  EXPECT_EQ(*static_cast<const uint8_t*>((*checkpoint)->FindTensor("a")->data), 2);
  EXPECT_EQ(*static_cast<const uint8_t*>((*checkpoint)->FindTensor("c")->data), 1);
  EXPECT_EQ((*checkpoint)->Sha256Hex(), FileSha256({Path("s1"), Path("s2")}));
  EXPECT_EQ((*checkpoint)->file_bytes(),
            static_cast<int64_t>(fs::file_size(Path("s1")) + fs::file_size(Path("s2"))));
}

TEST_F(CheckpointTest, RefusesADamagedIndex) {
  Put("config.json", "{}");
  PutWeights("s1", {"a"}, 1);
  PutWeights("s2", {"b"}, 2);
  PutWeights("s3", {"a"}, 3);
  const struct {
    std::string_view index;
    std::string_view error;
  } cases[] = {
      {"{", "got invalid JSON"},
      {"[]", "got array, want a JSON object"},
      {"{}", "weight_map: got nothing"},
      {R"({"weight_map": {}})", "weight_map: got nothing"},
      {R"({"weight_map": {"a": 1}})", "weight_map 'a': got number, want the name of a file"},
      {R"({"weight_map": {"a": "../s1"}})", "weight_map 'a': got '../s1', want the name of a file"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "weight_map 'a': got '/etc/passwd'"},
      {R"({"weight_map": {"a": ".."}})", "weight_map 'a': got '..'"},
      {R"({"weight_map": {"a": ""}})", "weight_map 'a': got ''"},
      {R"({"weight_map": {"a": "s1\u0000"}})", "weight_map 'a': got 's1\\x00'"},
      {R"({"weight_map": {"a": "missing"}})", "No such file"},
      {R"({"weight_map": {"a": "config.json"}})", "header length: got a file of 2 bytes"},
      {R"({"weight_map": {"a": "s1", "x": "s1"}})", "tensor 'x': got no such tensor in 's1'"},
      {R"({"weight_map": {"a": "s2", "b": "s1"}})", "tensor 'a': got no such tensor in 's2'"},
      {R"({"weight_map": {"a": "s1", "z": "s3"}})", "tensor 'a': got it a second time"},
  };
  for (const auto& c : cases) {
    Put("model.safetensors.index.json", c.index);
    ExpectContains(OpenError(), c.error);
  }
}

TEST_F(CheckpointTest, SaysWhatADirectoryLacks) {
  ExpectContains(OpenError(), "weights: got none, want model.safetensors or model.safetensors.index.json");
  Put("pytorch_model.bin", "x");
  ExpectContains(OpenError(),
                 "weights: got 'pytorch_model.bin', which is not read, want them as safetensors");
  Put("model-q4.gguf", "x");
  ExpectContains(OpenError(), "got a directory, want the path of 'model-q4.gguf' itself");
  PutWeights("other.safetensors", {"a"}, 1);
  ExpectContains(OpenError(), "got 'other.safetensors' without an index");
  PutWeights("model.safetensors", {"a"}, 1);
  ExpectContains(OpenError(), "config.json: got nothing");
  Put("config.json", "[1]");
  ExpectContains(OpenError(), "got array, want a JSON object");
  Put("config.json", "{,}");
  ExpectContains(OpenError(), "got invalid JSON");
  Put("config.json", "{}");
  EXPECT_EQ(OpenError(), "");
  Put("model.safetensors", "x");
  ExpectContains(OpenError(), "header length: got a file of 1 bytes");
}

}  // namespace
}  // namespace plumbline
