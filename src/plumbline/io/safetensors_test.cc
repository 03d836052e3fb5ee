#include "plumbline/io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "plumbline/io/mapped_file.h"

namespace plumbline {
namespace {

namespace fs = std::filesystem;

std::string WithHeader(std::string_view json, size_t data_bytes) {
  const uint64_t length = json.size();
  std::string out(reinterpret_cast<const char*>(&length), sizeof length);
  return out + std::string(json) + std::string(data_bytes, '\x01');
}

// Parses a copy that ends exactly at the end of its allocation and reads every tensor's last byte.
Result<std::vector<RawTensor>> ParseCopy(std::string_view text) {
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[text.size()]);
  std::memcpy(copy.get(), text.data(), text.size());
  Result<std::vector<RawTensor>> tensors = ParseSafetensors({copy.get(), text.size()}, "test.safetensors");
  if (!tensors.has_value()) {
    EXPECT_EQ(tensors.error().code, ErrorCode::kInvalidInput);
    EXPECT_TRUE(tensors.error().message.ends_with(" (test.safetensors)")) << tensors.error().message;
    EXPECT_EQ(tensors.error().message.find('\n'), std::string::npos);
    return tensors;
  }
  int sum = 0;
  for (const RawTensor& tensor : *tensors) {
    const int64_t bytes = ByteSize(tensor.dtype, tensor.Elements());
    if (bytes > 0) sum += static_cast<const uint8_t*>(tensor.data)[bytes - 1];
  }
  EXPECT_GE(sum, 0);
  return tensors;
}

constexpr std::string_view kSmall =
    R"({"__metadata__":{"a":"b"},"y":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},)"
    R"("x":{"shape":[2],"data_offsets":[0,4],"dtype":"BF16"},"none":{"dtype":"U8","shape":[3,0],"data_offsets":[4,4]}}  )";

TEST(Safetensors, ReadsASmallFileInTheOrderOfItsBytes) {
  const std::string text = WithHeader(kSmall, 12);
  const auto tensors = ParseSafetensors({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "x");
  ASSERT_TRUE(tensors.has_value()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_EQ((*tensors)[0].name, "x");
  EXPECT_EQ((*tensors)[0].dtype, DType::kBF16);
  EXPECT_EQ((*tensors)[1].name, "none");
  EXPECT_EQ((*tensors)[1].shape, (std::vector<int64_t>{3, 0}));
  EXPECT_EQ((*tensors)[2].name, "y");
  EXPECT_EQ((*tensors)[2].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ((*tensors)[2].data, text.data() + text.size() - 8);
  EXPECT_TRUE(ParseCopy(WithHeader("{}", 0)).has_value());
}

TEST(Safetensors, ReadsWhatTheReferenceWrites) {
  const Result<MappedFile> file =
      MappedFile::Open(PLUMBLINE_SOURCE_DIR "/tests/golden/gguf/tiny.safetensors");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto tensors = ParseSafetensors(file->bytes(), "tiny.safetensors");
  ASSERT_TRUE(tensors.has_value()) << tensors.error().message;
  const std::map<std::string, DType> want = {
      {"float32.matrix", DType::kF32}, {"float16.matrix", DType::kF16}, {"bfloat16.matrix", DType::kBF16},
      {"int32.matrix", DType::kI32},   {"int64.matrix", DType::kI64},   {"uint8.matrix", DType::kU8},
      {"uint32.matrix", DType::kU32},  {"scalar", DType::kF32},         {"empty", DType::kF16}};
  ASSERT_EQ(tensors->size(), want.size());
  for (const RawTensor& tensor : *tensors) {
    ASSERT_TRUE(want.contains(tensor.name)) << tensor.name;
    EXPECT_EQ(tensor.dtype, want.at(tensor.name));
    const std::vector<int64_t> shape = tensor.name == "scalar"  ? std::vector<int64_t>{}
                                       : tensor.name == "empty" ? std::vector<int64_t>{0, 5}
                                                                : std::vector<int64_t>{2, 3};
    EXPECT_EQ(tensor.shape, shape);
    const auto* data = static_cast<const uint8_t*>(tensor.data);
    for (int64_t i = 0; i < ByteSize(tensor.dtype, tensor.Elements()); ++i) ASSERT_EQ(data[i], i * 7 % 251);
  }
}

// A header whose one tensor has these fields.
std::string One(std::string_view fields) { return fmt::format(R"({{"x":{{{}}}}})", fields); }

struct Damage {
  std::string json;
  std::string_view error;
};

const Damage kDamages[] = {
    {"", "header: got no leading '{'"},
    {" {}", "header: got no leading '{'"},
    {"[]", "header: got no leading '{'"},
    {"{", "header: got invalid JSON at byte"},
    {"{} x", "header: got invalid JSON at byte"},
    {std::string("{}\0x", 4), "header: got a NUL byte"},
    {"{'x':1}", "header: got invalid JSON"},
    {"{\"x\":{},}", "tensor 'x': got 0 of its fields, want dtype, shape and data_offsets"},
    {"{\"\xff\":{}}", "header: got invalid JSON"},
    {R"({"x":1})", "tensor 'x': got a number, want an object"},
    {R"({"x":-1})", "tensor 'x': got -1, want an object"},
    {R"({"x":null})", "tensor 'x': got null, want an object"},
    {R"({"x":"y"})", "tensor 'x': got a string, want an object"},
    {R"({"x":[[[[[[]]]]]]})", "tensor 'x': got an array, want an object"},
    {R"({"__metadata__":{"a":1}})", "__metadata__ 'a': got a number, want a string"},
    {R"({"__metadata__":{"a":{}}})", "__metadata__ 'a': got an object, want a string"},
    {R"({"__metadata__":{"a":"1","a":"2"}})", "__metadata__ 'a': got it twice"},
    {R"({"__metadata__":[]})", "__metadata__: got an array, want an object"},
    {R"({"__metadata__":{},"__metadata__":{}})", "__metadata__: got it twice"},
    {R"({"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"x":{}})", "tensor 'x': got it twice"},
    {One(R"("dtype":"U8","shape":[8])"), "tensor 'x': got 2 of its fields"},
    {One(R"("dtype":"U8","dtype":"U8")"), "tensor 'x' 'dtype': got it twice"},
    {One(R"("dtype":"U8","shape":[8],"data_offsets":[0,8],"extra":1)"),
     "tensor 'x' 'extra': got an unknown field"},
    {One(R"("dtype":8,"shape":[8],"data_offsets":[0,8])"), "tensor 'x' 'dtype': got a number, want a string"},
    {One(R"("dtype":["U8"])"), "tensor 'x' 'dtype': got an array, want a string"},
    {One(R"("dtype":"F64","shape":[1],"data_offsets":[0,8])"), "tensor 'x' dtype: got 'F64', want F32, F16"},
    {One(R"("dtype":"f32","shape":[2],"data_offsets":[0,8])"), "tensor 'x' dtype: got 'f32'"},
    {One(R"("dtype":"U8","shape":8,"data_offsets":[0,8])"),
     "tensor 'x' 'shape': got a number, want an array"},
    {One(R"("dtype":"U8","shape":[-8],"data_offsets":[0,8])"),
     "tensor 'x' 'shape': got -8, want an integer of 0"},
    {One(R"("dtype":"U8","shape":[8.0],"data_offsets":[0,8])"),
     "tensor 'x' 'shape': got '8.0', want an integer"},
    {One(R"("dtype":"U8","shape":["8"],"data_offsets":[0,8])"),
     "tensor 'x' 'shape': got a string, want an integer"},
    {One(R"("dtype":"U8","shape":[18446744073709551616])"),
     "tensor 'x' 'shape': got '18446744073709551616', want"},
    {One(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1])"),
     "tensor 'x' 'shape': got more than 16"},
    {One(R"("dtype":"F32","shape":[4611686018427387904,2],"data_offsets":[0,8])"),
     "want fewer than 2^63 bytes"},
    {One(R"("dtype":"U8","shape":[0,4611686018427387904,2],"data_offsets":[0,8])"),
     "want fewer than 2^63 bytes"},
    {One(R"("dtype":"U8","shape":[9],"data_offsets":[0,8])"), "tensor 'x' data_offsets: got 8 bytes, want 9"},
    {One(R"("dtype":"U8","shape":[8],"data_offsets":[0])"),
     "tensor 'x' 'data_offsets': got 1 numbers, want 2"},
    {One(R"("dtype":"U8","shape":[8],"data_offsets":[0,8,8])"),
     "tensor 'x' 'data_offsets': got 3 numbers, want 2"},
    {One(R"("dtype":"U8","shape":[9],"data_offsets":[0,9])"), "got [0, 9), want a range inside the 8 bytes"},
    {One(R"("dtype":"U8","shape":[8],"data_offsets":[8,0])"), "got [8, 0), want a range"},
    {One(R"("dtype":"U8","shape":[8],"data_offsets":[18446744073709551608,0])"), "want a range inside"},
    {One(R"("dtype":"U8","shape":[7],"data_offsets":[1,8])"), "got 1 as its begin, want 0"},
    {One(R"("dtype":"U8","shape":[7],"data_offsets":[0,7])"), "data: got 1 bytes after the last tensor"},
    {R"({"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"y":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
     "tensor 'y' data_offsets: got 4 as its begin, want 8"},
};

TEST(Safetensors, RefusesEveryDamagedHeader) {
  for (const auto& c : kDamages) {
    const auto tensors = ParseCopy(WithHeader(c.json, 8));
    ASSERT_FALSE(tensors.has_value()) << c.json;
    EXPECT_NE(tensors.error().message.find(c.error), std::string::npos)
        << tensors.error().message << "\nwant: " << c.error;
  }
  for (uint64_t length : {uint64_t{3}, uint64_t{100'000'001}, ~uint64_t{0}}) {
    std::string text = WithHeader("{}", 0);
    std::memcpy(text.data(), &length, sizeof length);
    EXPECT_FALSE(ParseCopy(text).has_value()) << length;
  }
}

TEST(Safetensors, RefusesEveryTruncationAndSurvivesEveryDamagedByte) {
  const std::string text = WithHeader(kSmall, 12);
  ASSERT_TRUE(ParseCopy(text).has_value());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(ParseCopy(std::string_view(text).substr(0, size)).has_value()) << size;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    for (int value : {0x00, 0x22, 0x5b, 0x7b, 0x80, 0xff, text[i] ^ 0x01}) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(value);
      static_cast<void>(ParseCopy(damaged));
    }
  }
}

class SafetensorsWriterTest : public testing::Test {
 protected:
  SafetensorsWriterTest() {
    std::string name = (fs::temp_directory_path() / "plumbline_writer_XXXXXX").string();
    directory_ = mkdtemp(name.data());
    path_ = (directory_ / "out.safetensors").string();
  }
  ~SafetensorsWriterTest() override { fs::remove_all(directory_); }

  size_t FilesThere() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }

  fs::path directory_;
  std::string path_;
};

TEST_F(SafetensorsWriterTest, WritesRowsInAnyOrderAndReadsThemBack) {
  auto created = SafetensorsWriter::Create(path_,
                                           {{"bytes", DType::kU8, {3}},
                                            {"h", DType::kF32, {4, 2}},
                                            {"half", DType::kBF16, {3}},
                                            {"scalar \"q\"\n\xc3\xa9", DType::kI64, {}},
                                            {"empty", DType::kF32, {0, 7}}},
                                           {{"who", "caf\xc3\xa9"}});
  ASSERT_TRUE(created.has_value()) << created.error().message;
  SafetensorsWriter& writer = **created;
  EXPECT_FALSE(fs::exists(path_));
  const auto bytes_of = [](const auto& values) { return std::as_bytes(std::span(values)); };
  const auto write = [&](size_t index, int64_t offset, const auto& values) {
    const auto bytes = bytes_of(values);
    return writer.Write(index, offset, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()})
        .has_value();
  };
  for (int row : {3, 1, 0, 2}) {
    EXPECT_TRUE(write(1, row * 8, std::vector<float>{row + 0.25f, row + 0.5f}));
  }
  EXPECT_TRUE(write(0, 0, std::vector<uint8_t>{1, 2, 3}));
  EXPECT_TRUE(write(2, 4, std::vector<uint16_t>{9}));
  EXPECT_TRUE(write(3, 0, std::vector<int64_t>{-5}));
  EXPECT_TRUE(write(4, 0, std::vector<float>{}));
  const Status closed = writer.Close();
  ASSERT_TRUE(closed.has_value()) << closed.error().message;
  EXPECT_EQ(FilesThere(), 1u);

  const Result<MappedFile> file = MappedFile::Open(path_);
  ASSERT_TRUE(file.has_value());
  const auto tensors = ParseSafetensors(file->bytes(), path_);
  ASSERT_TRUE(tensors.has_value()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 5u);
  for (const RawTensor& tensor : *tensors) {
    EXPECT_EQ(
        reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(Info(tensor.dtype).block_bytes),
        0u);
  }
  const auto find = [&](std::string_view name) {
    return *std::ranges::find(*tensors, name, &RawTensor::name);
  };
  const RawTensor h = find("h");
  EXPECT_EQ(h.shape, (std::vector<int64_t>{4, 2}));
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(static_cast<const float*>(h.data)[i], i / 2 + (i % 2 == 0 ? 0.25f : 0.5f));
  EXPECT_EQ(*static_cast<const int64_t*>(find("scalar \"q\"\n\xc3\xa9").data), -5);
  EXPECT_EQ(static_cast<const uint16_t*>(find("half").data)[0], 0);
  EXPECT_EQ(static_cast<const uint16_t*>(find("half").data)[2], 9);
  EXPECT_EQ(static_cast<const uint8_t*>(find("bytes").data)[2], 3);
}

TEST_F(SafetensorsWriterTest, LeavesNothingBehindWithoutClose) {
  {
    const auto writer = SafetensorsWriter::Create(path_, {{"x", DType::kU8, {3}}}, {});
    ASSERT_TRUE(writer.has_value());
    EXPECT_EQ(FilesThere(), 1u);
  }
  EXPECT_EQ(FilesThere(), 0u);
}

TEST_F(SafetensorsWriterTest, RefusesWhatTheFormatCannotHold) {
  const auto error = [&](std::vector<SafetensorsWriter::Tensor> tensors,
                         std::map<std::string, std::string> metadata) {
    const auto writer = SafetensorsWriter::Create(path_, std::move(tensors), metadata);
    return writer.has_value() ? std::string() : writer.error().message;
  };
  EXPECT_NE(error({{"x", DType::kU8, {3}}, {"x", DType::kU8, {3}}}, {}).find("'x' twice"), std::string::npos);
  EXPECT_NE(error({{"__metadata__", DType::kU8, {3}}}, {}).find("other than __metadata__"),
            std::string::npos);
  EXPECT_NE(error({{"\xff", DType::kU8, {3}}}, {}).find("want UTF-8"), std::string::npos);
  EXPECT_NE(error({}, {{"k", "\xc3"}}).find("want UTF-8"), std::string::npos);
  EXPECT_NE(error({{"x", DType::kQ4_0, {32}}}, {}).find("got q4_0, want a plain type"), std::string::npos);
  EXPECT_NE(error({{"x", DType::kU8, {-1}}}, {}).find("got a dimension of -1"), std::string::npos);
  EXPECT_NE(error({{"x", DType::kF32, {INT64_MAX}}}, {}).find("fewer than 2^63"), std::string::npos);
  EXPECT_NE(error({{"x", DType::kU8, {INT64_MAX}}}, {}).find("want fewer"), std::string::npos);
  EXPECT_EQ(FilesThere(), 0u);
  const auto nowhere = SafetensorsWriter::Create((directory_ / "no" / "x").string(), {}, {});
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_NE(nowhere.error().message.find("No such file or directory, want to create"), std::string::npos);
}

TEST_F(SafetensorsWriterTest, AFailedWriteOrRenameIsAnErrorWithThePath) {
  const auto writer = SafetensorsWriter::Create(path_, {{"x", DType::kU8, {100000}}}, {});
  ASSERT_TRUE(writer.has_value());
  // A limit on file size stands in for a full disk.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 5000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<uint8_t> bytes(100000, 1);
  const Status written = (*writer)->Write(0, 0, bytes);
  const auto too_big = SafetensorsWriter::Create(path_ + "2", {{"x", DType::kU8, {100000}}}, {});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, ErrorCode::kFailed);
  EXPECT_NE(written.error().message.find(path_), std::string::npos);
  ASSERT_FALSE(too_big.has_value());
  EXPECT_EQ(too_big.error().code, ErrorCode::kFailed);
  EXPECT_EQ(FilesThere(), 1u);

  fs::create_directory(path_);
  const Status closed = (*writer)->Close();
  ASSERT_FALSE(closed.has_value());
  EXPECT_NE(closed.error().message.find(path_), std::string::npos);
}

}  // namespace
}  // namespace plumbline
