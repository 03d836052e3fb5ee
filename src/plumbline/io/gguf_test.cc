#include "plumbline/io/gguf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>

#include "plumbline/io/mapped_file.h"

namespace plumbline {
namespace {

enum : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

template <typename T>
std::string Raw(T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string Str(std::string_view text) { return Raw(uint64_t{text.size()}) + std::string(text); }

template <typename T>
std::string Entry(std::string_view key, uint32_t type, T value) {
  return Str(key) + Raw(type) + Raw(value);
}

// An array's beginning: its elements follow.
std::string Array(std::string_view key, uint32_t type, uint64_t count) {
  return Entry(key, kArray, type) + Raw(count);
}

struct TestTensor {
  std::string name;
  std::vector<uint64_t> dims;  // innermost first, as in the file
  uint32_t type = 0;
  uint64_t offset = 0;
};

// A small valid file; tests damage one field each.
struct TestFile {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::string> metadata = {
      Entry("general.alignment", kU32, uint32_t{64}),
      Str("name") + Raw(uint32_t{kString}) + Str("tiny"),
      Str("list") + Raw(uint32_t{kArray}) + Raw(uint32_t{kI32}) + Raw(uint64_t{2}) + Raw(int32_t{7}) +
          Raw(int32_t{-8}),
  };
  std::vector<TestTensor> tensors = {{"a", {3, 2}, 0, 0}, {"b", {32, 1, 2}, 2, 64}};
  uint64_t metadata_count = 3;
  uint64_t tensor_count = 2;
  uint64_t alignment = 64;
  size_t data_bytes = 64 + 2 * 18;

  std::string Build() const {
    std::string out = magic + Raw(version) + Raw(tensor_count) + Raw(metadata_count);
    for (const std::string& entry : metadata) out += entry;
    for (const TestTensor& tensor : tensors) {
      out += Str(tensor.name) + Raw(static_cast<uint32_t>(tensor.dims.size()));
      for (uint64_t dim : tensor.dims) out += Raw(dim);
      out += Raw(tensor.type) + Raw(tensor.offset);
    }
    out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    for (size_t i = 0; i < data_bytes; ++i) out += static_cast<char>(i);
    return out;
  }
};

// Parses a copy that ends exactly at the end of its allocation, and reads every tensor's last byte, so that
// the address sanitizer sees any step outside.
Result<GgufFile> ParseCopy(std::string_view text) {
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[text.size()]);
  std::memcpy(copy.get(), text.data(), text.size());
  Result<GgufFile> file = GgufFile::Parse({copy.get(), text.size()}, "test.gguf");
  if (!file.has_value()) {
    EXPECT_EQ(file.error().code, ErrorCode::kInvalidInput);
    EXPECT_TRUE(file.error().message.ends_with(" (test.gguf)")) << file.error().message;
    EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
    return file;
  }
  int sum = 0;
  for (const RawTensor& tensor : file->tensors()) {
    const auto* data = static_cast<const uint8_t*>(tensor.data);
    sum += data[0] + data[ByteSize(tensor.dtype, tensor.Elements()) - 1];
  }
  EXPECT_GE(sum, 0);
  return file;
}

void ExpectError(const TestFile& file, std::string_view part) {
  const Result<GgufFile> parsed = ParseCopy(file.Build());
  ASSERT_FALSE(parsed.has_value()) << part;
  EXPECT_NE(parsed.error().message.find(part), std::string::npos)
      << parsed.error().message << "\nwant: " << part;
}

TEST(Gguf, ReadsASmallFileOfBothVersions) {
  for (uint32_t version : {2u, 3u}) {
    TestFile test;
    test.version = version;
    const std::string text = test.Build();
    const Result<GgufFile> file =
        GgufFile::Parse({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "test.gguf");
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(file->GetString("name").value(), "tiny");
    EXPECT_EQ(file->GetInts("list").value(), (std::vector<int64_t>{7, -8}));
    ASSERT_EQ(file->tensors().size(), 2u);
    const RawTensor* b = file->FindTensor("b");
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(b->dtype, DType::kQ4_0);
    EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 1, 32}));
    EXPECT_EQ(*static_cast<const uint8_t*>(b->data), 64);
    EXPECT_EQ(file->FindTensor("c"), nullptr);
  }
}

TEST(Gguf, ReadsWhatTheReferenceWrites) {
  const Result<MappedFile> mapped = MappedFile::Open(PLUMBLINE_SOURCE_DIR "/tests/golden/gguf/tiny.gguf");
  ASSERT_TRUE(mapped.has_value()) << mapped.error().message;
  const Result<GgufFile> file = GgufFile::Parse(mapped->bytes(), "tiny.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->GetString("general.architecture").value(), "llama");
  EXPECT_EQ(file->GetInt("test.u8").value(), 200);
  EXPECT_EQ(file->GetInt("test.i8").value(), -100);
  EXPECT_EQ(file->GetInt("test.u16").value(), 60000);
  EXPECT_EQ(file->GetInt("test.i16").value(), -30000);
  EXPECT_EQ(file->GetInt("test.u32").value(), 4000000000);
  EXPECT_EQ(file->GetInt("test.i32").value(), -2000000000);
  EXPECT_EQ(std::get<uint64_t>(file->metadata().find("test.u64")->second.value), ~uint64_t{0});
  EXPECT_EQ(file->GetInt("test.i64").value(), INT64_MIN);
  EXPECT_EQ(file->GetFloat("test.f32").value(), 0.1f);
  EXPECT_EQ(file->GetFloat("test.f64").value(), 0.1);
  EXPECT_TRUE(file->GetBoolOr("test.bool", false).value());
  EXPECT_EQ(file->GetString("test.string").value(), "h\xc3\xa9llo\n");
  const GgufStrings strings = file->GetStrings("test.strings").value();
  EXPECT_EQ(strings.size(), 3u);
  EXPECT_EQ(std::vector<std::string>(strings.begin(), strings.end()), (std::vector<std::string>{"a", "",
                                                                                                "\xe2\x96\x81"
                                                                                                "b"}));
  EXPECT_EQ(file->GetInts("test.ints").value(), (std::vector<int64_t>{3, -4, 5}));
  EXPECT_EQ(file->GetFloats("test.floats").value(), (std::vector<double>{0.5, -1.25}));
  EXPECT_EQ(file->GetInts("test.bools").value(), (std::vector<int64_t>{1, 0}));

  ASSERT_EQ(file->tensors().size(), 13u);
  for (DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
        DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kI32, DType::kI64}) {
    const bool ids = dtype == DType::kI32 || dtype == DType::kI64;
    const RawTensor* tensor = file->FindTensor((ids ? "ids." : "weight.") + std::string(Info(dtype).name));
    ASSERT_NE(tensor, nullptr) << Info(dtype).name;
    EXPECT_EQ(tensor->dtype, dtype);
    const int64_t row = IsQuantized(dtype) ? 2 * Info(dtype).block_elements : 3;
    EXPECT_EQ(tensor->shape, ids ? (std::vector<int64_t>{2, 3, 4}) : (std::vector<int64_t>{2, row}));
    const auto* data = static_cast<const uint8_t*>(tensor->data);
    for (int64_t i = 0; i < ByteSize(dtype, tensor->Elements()); ++i) ASSERT_EQ(data[i], i * 7 % 251) << i;
  }
}

TEST(Gguf, LookUpsNameTheKeyAndTheKinds) {
  TestFile test;
  test.metadata.push_back(Entry("huge", kU64, ~uint64_t{0}));
  test.metadata_count = 4;
  const Result<GgufFile> parsed = ParseCopy(test.Build());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  const GgufFile& file = *parsed;
  EXPECT_EQ(file.GetInt("none").error().message, "metadata 'none': got nothing, want an integer (test.gguf)");
  EXPECT_EQ(file.GetInt("name").error().message,
            "metadata 'name': got a string, want an integer (test.gguf)");
  EXPECT_EQ(file.GetInt("huge").error().message,
            "metadata 'huge': got an integer of 2^63 or more, want an integer (test.gguf)");
  EXPECT_FALSE(file.GetFloat("list").has_value());
  EXPECT_FALSE(file.GetFloats("list").has_value());
  EXPECT_FALSE(file.GetStrings("list").has_value());
  EXPECT_FALSE(file.GetString("list").has_value());
  EXPECT_FALSE(file.GetInts("name").has_value());
  EXPECT_EQ(file.GetIntOr("none", 5).value(), 5);
  EXPECT_EQ(file.GetFloatOr("none", 0.5).value(), 0.5);
  EXPECT_EQ(file.GetBoolOr("none", true).value(), true);
  EXPECT_EQ(file.GetStringOr("none", "x").value(), "x");
  EXPECT_FALSE(file.GetIntOr("name", 5).has_value());
  EXPECT_FALSE(file.GetFloatOr("name", 5).has_value());
  EXPECT_FALSE(file.GetBoolOr("name", true).has_value());
  EXPECT_FALSE(file.GetStringOr("list", "").has_value());
  EXPECT_TRUE(file.Has("list"));
  EXPECT_FALSE(file.Has("lis"));
}

struct Damage {
  std::function<void(TestFile&)> damage;
  std::string_view error;
};

const Damage kDamages[] = {
    {[](TestFile& f) { f.magic = "GGML"; }, "magic: got 0x4c4d4747, want 0x46554747"},
    {[](TestFile& f) { f.magic = "FUGG"; }, "magic: got a big-endian file"},
    {[](TestFile& f) { f.version = 1; }, "version: got 1, want 2 or 3"},
    {[](TestFile& f) { f.version = 4; }, "version: got 4, want 2 or 3"},
    {[](TestFile& f) { f.version = 0; }, "version: got 0, want 2 or 3"},
    {[](TestFile& f) { f.version = 0x03000000; }, "version: got a big-endian file"},
    {[](TestFile& f) { f.tensor_count = uint64_t{1} << 60; }, "tensor count: got 1152921504606846976, want"},
    {[](TestFile& f) { f.tensor_count = 3; }, "tensor 2 of 3 name"},
    {[](TestFile& f) { f.metadata_count = ~uint64_t{0}; }, "metadata count: got 18446744073709551615, want"},
    {[](TestFile& f) { f.metadata_count = 4; }, "tensor 0 of 2 name: got a length"},
    {[](TestFile& f) { f.metadata[1] = Entry("x", kBool, uint8_t{2}); },
     "metadata 'x' value: got byte 2, want 0 or 1"},
    {[](TestFile& f) { f.metadata[1] = Entry("x", 13, uint8_t{0}); },
     "metadata 'x' value type: got 13, want"},
    {[](TestFile& f) { f.metadata[1] = Entry("", kU8, uint8_t{0}); },
     "metadata 1 of 3 key: got 0 bytes, want 1 to"},
    {[](TestFile& f) { f.metadata[1] = Entry(std::string(65536, 'k'), kU8, uint8_t{0}); },
     "key: got 65536 bytes"},
    {[](TestFile& f) { f.metadata[1] = Raw(uint64_t{1} << 63) + "x"; },
     "key: got a length of 9223372036854775808"},
    {[](TestFile& f) { f.metadata[1] = f.metadata[2]; }, "metadata 'list' key: got it twice"},
    {[](TestFile& f) { f.metadata[1] = Entry("x", kString, ~uint64_t{0}); },
     "metadata 'x' value: got a length of"},
    {[](TestFile& f) { f.metadata[1] = Array("x\n\xff", kArray, uint64_t{1}); },
     "metadata 'x\\x0a\\xff' array: got arrays as elements"},
    {[](TestFile& f) { f.metadata[1] = Array("x", 77, uint64_t{1}); },
     "metadata 'x' array element type: got 77, want"},
    {[](TestFile& f) { f.metadata[1] = Array("x", kU8, uint64_t{1} << 62); },
     "metadata 'x' array: got 4611686018427387904 elements, want at most"},
    {[](TestFile& f) { f.metadata[1] = Array("x", kF64, uint64_t{100}); },
     "metadata 'x' array: got 100 elements of at least 8 bytes"},
    {[](TestFile& f) { f.metadata[1] = Array("x", kString, uint64_t{100}); },
     "metadata 'x' array: got 100 elements of at least 8 bytes"},
    {[](TestFile& f) { f.metadata[1] = Array("x", kString, uint64_t{1}) + Raw(uint64_t{9999}); },
     "metadata 'x' array element: got a length of 9999"},
    {[](TestFile& f) { f.metadata[1] = Array("x", kBool, uint64_t{1}) + "\x05"; },
     "metadata 'x' value: got byte 5"},
    {[](TestFile& f) { f.metadata[1] = Array("x", kU64, uint64_t{1}) + Raw(~uint64_t{0}); },
     "metadata 'x' array: got element 18446744073709551615"},
    {[](TestFile& f) { f.metadata[0] = Entry("general.alignment", kU32, uint32_t{48}); },
     "got 48, want a power of two"},
    {[](TestFile& f) { f.metadata[0] = Entry("general.alignment", kU32, uint32_t{0}); },
     "got 0, want a power of two"},
    {[](TestFile& f) { f.metadata[0] = Entry("general.alignment", kI32, int32_t{-32}); },
     "got -32, want a power"},
    {[](TestFile& f) { f.metadata[0] = Entry("general.alignment", kI64, int64_t{1} << 40); },
     "want a power of two up"},
    {[](TestFile& f) { f.metadata[0] = Entry("general.alignment", kF32, 32.0f); },
     "got a float, want an integer"},
    {[](TestFile& f) { f.tensors[0].name = ""; }, "tensor 0 of 2 name: got 0 bytes"},
    {[](TestFile& f) { f.tensors[0].name = std::string(65, 'n'); }, "tensor 0 of 2 name: got 65 bytes"},
    {[](TestFile& f) { f.tensors[1].name = "a"; }, "tensor 'a': got it twice"},
    {[](TestFile& f) { f.tensors[0].dims = {}; }, "tensor 'a' number of dimensions: got 0, want 1 to 4"},
    {[](TestFile& f) {
       f.tensors[0].dims = {1, 1, 1, 1, 1};
     },
     "tensor 'a' number of dimensions: got 5, want 1 to 4"},
    {[](TestFile& f) {
       f.tensors[0].dims = {3, 0};
     },
     "tensor 'a' dimension: got 0, want a positive"},
    {[](TestFile& f) { f.tensors[0].dims = {uint64_t{1} << 63}; },
     "tensor 'a' dimension: got 9223372036854775808"},
    {[](TestFile& f) {
       f.tensors[0].dims = {uint64_t{1} << 32, uint64_t{1} << 31};
     },
     "fewer than 2^63 elements"},
    {[](TestFile& f) {
       f.tensors[0].dims = {uint64_t{1} << 31, uint64_t{1} << 31};
     },
     "fewer than 2^63 bytes"},
    {[](TestFile& f) { f.tensors[0].dims = {uint64_t{1} << 40}; },
     "tensor 'a': got 4398046511104 bytes at offset 0"},
    {[](TestFile& f) {
       f.tensors[1].dims = {33, 2};
     },
     "tensor 'b' row: got 33 elements, want a multiple of the q4_0"},
    {[](TestFile& f) {
       f.tensors[1].dims = {16, 4};
     },
     "tensor 'b' row: got 16 elements"},
    {[](TestFile& f) { f.tensors[1].type = 10; }, "tensor 'b' type: got Q2_K, want"},
    {[](TestFile& f) { f.tensors[1].type = 23; }, "tensor 'b' type: got IQ4_XS, want"},
    {[](TestFile& f) { f.tensors[1].type = 39; }, "tensor 'b' type: got MXFP4, want"},
    {[](TestFile& f) { f.tensors[1].type = 99; }, "tensor 'b' type: got ggml type number 99"},
    {[](TestFile& f) { f.tensors[1].offset = 32; },
     "tensor 'b' offset: got 32, want a multiple of the alignment 64"},
    {[](TestFile& f) { f.tensors[1].offset = 128; },
     "tensor 'b': got 36 bytes at offset 128, want them inside"},
    {[](TestFile& f) { f.tensors[1].offset = uint64_t{1} << 63; },
     "tensor 'b': got 36 bytes at offset 9223372036854775808"},
    {[](TestFile& f) { f.tensors[1].offset = ~uint64_t{63}; },
     "tensor 'b': got 36 bytes at offset 18446744073709551552"},
    {[](TestFile& f) { f.tensors[1].offset = 0; }, "got offset 0, want it past the end of tensor"},
    {[](TestFile& f) { f.tensors[0].dims = {17}; },
     "tensor 'b': got offset 64, want it past the end of tensor 'a' at 68"},
    {[](TestFile& f) { f.data_bytes -= 1; },
     "tensor 'b': got 36 bytes at offset 64, want them inside the 99 bytes"},
};

TEST(Gguf, RefusesEveryDamagedHeaderField) {
  for (const auto& [damage, error] : kDamages) {
    TestFile file;
    damage(file);
    ExpectError(file, error);
  }
}

TEST(Gguf, AcceptsAFileWithoutTensorsThatEndsAtItsHeader) {
  TestFile test;
  test.tensors.clear();
  test.tensor_count = 0;
  test.data_bytes = 0;
  test.alignment = 1;  // of the file built, not of its metadata
  const Result<GgufFile> file = ParseCopy(test.Build());
  EXPECT_TRUE(file.has_value()) << file.error().message;
}

TEST(Gguf, RefusesEveryTruncation) {
  const std::string text = TestFile().Build();
  ASSERT_TRUE(ParseCopy(text).has_value());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(ParseCopy(std::string_view(text).substr(0, size)).has_value()) << size;
  }
}

TEST(Gguf, SurvivesEveryDamagedByte) {
  const std::string text = TestFile().Build();
  for (size_t i = 0; i < text.size(); ++i) {
    for (int value : {0x00, 0x01, 0x7f, 0x80, 0xff, text[i] ^ 0x10}) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(value);
      static_cast<void>(ParseCopy(damaged));
    }
  }
}

}  // namespace
}  // namespace plumbline
