#include "model/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"

namespace tempo::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TemporaryDirectory;

// What safetensors.torch.save of PyPI's safetensors 0.8.0 makes of reference_tensors() with metadata {"format": "pt"}.
constexpr const char* kReferenceFile =
    "40020000000000007b225f5f6d657461646174615f5f223a7b22666f726d6174223a227074227d2c22696473223a7b226474797065223a2249"
    "3634"
    "222c227368617065223a5b312c335d2c22646174615f6f666673657473223a5b302c32345d7d2c22612e62696173223a7b226474797065223a"
    "2246"
    "3332222c227368617065223a5b315d2c22646174615f6f666673657473223a5b32342c32385d7d2c22622e776569676874223a7b2264747970"
    "6522"
    "3a22463332222c227368617065223a5b322c325d2c22646174615f6f666673657473223a5b32382c34345d7d2c22656d707479223a7b226474"
    "7970"
    "65223a22463332222c227368617065223a5b302c345d2c22646174615f6f666673657473223a5b34342c34345d7d2c227363616c6172223a7b"
    "2264"
    "74797065223a22463332222c227368617065223a5b5d2c22646174615f6f666673657473223a5b34342c34385d7d2c22c3a95c225c5c5c6e5c"
    "7530"
    "303031223a7b226474797065223a22493332222c227368617065223a5b315d2c22646174615f6f666673657473223a5b34382c35325d7d2c22"
    "6266"
    "223a7b226474797065223a2242463136222c227368617065223a5b315d2c22646174615f6f666673657473223a5b35322c35345d7d2c226861"
    "6c66"
    "223a7b226474797065223a22463136222c227368617065223a5b335d2c22646174615f6f666673657473223a5b35342c36305d7d2c226d6173"
    "6b22"
    "3a7b226474797065223a22424f4f4c222c227368617065223a5b335d2c22646174615f6f666673657473223a5b36302c36335d7d7d00000000"
    "0000"
    "0000010000000000000002000000000000000000003f0000c03f000010c000004040cdcccc3d00000040070000004940003c0080ff7b01000"
    "1";
constexpr const char* kOddName = "\xc3\xa9\"\\\n\x01";

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

NamedTensors reference_tensors() {
  return {{"b.weight", at::tensor({1.5F, -2.25F, 3.0F, 0.1F}).view({2, 2})},
          {"a.bias", at::tensor({0.5F})},
          {"half", at::tensor({1.0F, -0.0F, 65504.0F}).to(at::kHalf)},
          {"bf", at::tensor({3.140625F}).to(at::kBFloat16)},
          {"ids", at::arange(3, at::kLong).view({1, 3})},
          {"scalar", at::scalar_tensor(2.0, at::kFloat)},
          {"empty", at::zeros({0, 4})},
          {"mask", at::tensor({1, 0, 1}).to(at::kBool)},
          {kOddName, at::tensor({7}, at::kInt)}};
}

std::string unhex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

/// A file of these parts; `announced` is the header length it states, if that is not the true one.
std::string file_of(const std::string& header, const std::string& data = "",
                    std::uint64_t announced = ~std::uint64_t{0}) {
  if (announced == ~std::uint64_t{0}) announced = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &announced, 8);
  return bytes + header + data;
}

/// The header of one tensor called "a".
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

class SafetensorsTest : public ::testing::Test {
 protected:
  const std::filesystem::path& write(const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string contents() const {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  std::string error_of(const std::string& bytes) {
    write(bytes);
    return testing::value_error_of([&] { SafetensorsReader{path}; });
  }
  /// For headers with no data to speak of.
  std::string header_error(const std::string& header, const std::string& data = "") {
    return error_of(file_of(header, data));
  }

  /// For the header of one tensor called "a", over four bytes of data.
  std::string entry_error(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return header_error(entry(dtype, shape, offsets), "1234");
  }

  TemporaryDirectory folder;
  std::filesystem::path path = folder / "model.safetensors";
};

constexpr const char* kNoError = "(no c10::ValueError was thrown)";

TEST_F(SafetensorsTest, WritesTheBytesOfTheReferenceImplementation) {
  write_safetensors(path, reference_tensors());
  EXPECT_EQ(contents(), unhex(kReferenceFile));
}

TEST_F(SafetensorsTest, ReadsTheFileOfTheReferenceImplementation) {
  const SafetensorsReader reader(write(unhex(kReferenceFile)));
  EXPECT_EQ(reader.tensors().size(), 9U);
  EXPECT_EQ(reader.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  for (const auto& [name, tensor] : reference_tensors()) {
    const at::Tensor found = reader.read(name);
    EXPECT_EQ(found.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(found.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(at::equal(found, tensor)) << name;
  }
  const TensorInfo& info = reader.tensors().at("b.weight");
  EXPECT_EQ(info.dtype, "F32");
  EXPECT_THAT(info.shape, ElementsAre(2, 2));
  EXPECT_EQ(info.begin, 28U);
  EXPECT_EQ(info.end, 44U);
  EXPECT_TRUE(reader.contains("ids"));
  EXPECT_FALSE(reader.contains("__metadata__"));
}

// The order of types is that of the reference implementation's file of the same nineteen tensors.
TEST_F(SafetensorsTest, EveryTypeSurvivesAndTheWidestComesFirst) {
  // clang-format off
  const std::string names[] = {
      "U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16", "F8_E5M2FNUZ", "F8_E4M3FNUZ",
      "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL"};
  const at::ScalarType types[] = {
      at::kUInt64, at::kLong, at::kDouble, at::kComplexFloat, at::kFloat, at::kUInt32, at::kInt, at::kBFloat16,
      at::kHalf, at::kUInt16, at::kShort, at::kFloat8_e5m2fnuz, at::kFloat8_e4m3fnuz, at::kFloat8_e8m0fnu,
      at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kChar, at::kByte, at::kBool};
  // clang-format on
  NamedTensors tensors;
  for (std::size_t i = std::size(types); i-- > 0;) {
    tensors.emplace_back("t" + names[i], at::tensor({1.0F, 2.0F}).to(types[i]));
  }
  write_safetensors(path, tensors);
  const SafetensorsReader reader(path);
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < std::size(types); ++i) {
    const TensorInfo& info = reader.tensors().at("t" + names[i]);
    EXPECT_EQ(info.dtype, names[i]);
    EXPECT_EQ(info.begin, offset);
    offset = info.end;
    const at::Tensor found = reader.read("t" + names[i]);
    EXPECT_EQ(found.scalar_type(), types[i]);
    const float second = types[i] == at::kBool ? 1.0F : 2.0F;
    EXPECT_TRUE(at::equal(at::real(found).to(at::kFloat), at::tensor({1.0F, second}))) << names[i];
  }
}

TEST_F(SafetensorsTest, NonContiguousTensorsAreWrittenInTheirOwnOrder) {
  const at::Tensor transposed = at::arange(6, at::kFloat).view({2, 3}).t();
  write_safetensors(path, {{"t", transposed}, {"row", at::arange(6, at::kFloat).view({2, 3}).select(0, 1)}});
  const SafetensorsReader reader(path);
  EXPECT_TRUE(at::equal(reader.read("t"), transposed));
  EXPECT_TRUE(at::equal(reader.read("row"), at::tensor({3.0F, 4.0F, 5.0F})));
}

TEST_F(SafetensorsTest, FileWithoutTensorsIsValid) {
  write_safetensors(path, {});
  EXPECT_THAT(SafetensorsReader(path).tensors(), IsEmpty());
  EXPECT_EQ(error_of(file_of("{}")), kNoError);
}

TEST_F(SafetensorsTest, UnalignedDataIsReadCorrectly) {
  for (std::size_t spaces = 0; spaces < 8; ++spaces) {
    const float stored[] = {1.25F, -3.5F};
    const std::string data(reinterpret_cast<const char*>(stored), sizeof(stored));
    const SafetensorsReader reader(write(file_of(std::string(spaces, ' ') + entry("F32", "[2]", "[0,8]"), data)));
    at::Tensor destination = at::zeros({2}, at::kDouble);
    reader.copy_to("a", destination);
    EXPECT_TRUE(at::equal(destination, at::tensor({1.25, -3.5}, at::kDouble))) << spaces;
    EXPECT_TRUE(at::equal(reader.read("a"), at::tensor({1.25F, -3.5F}))) << spaces;
  }
}

TEST_F(SafetensorsTest, CopiesBetweenFloatingTypes) {
  const at::ScalarType types[] = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  NamedTensors tensors;
  const at::Tensor values = at::tensor({1.0F / 3, -2.0F, 1e-3F, 0.0F}).view({2, 2});
  for (const at::ScalarType type : types) tensors.emplace_back(c10::toString(type), values.to(type));
  write_safetensors(path, tensors);
  const SafetensorsReader reader(path);
  for (const auto& [name, stored] : tensors) {
    for (const at::ScalarType type : types) {
      const at::Tensor destination = at::full({2, 2}, 9, at::TensorOptions(type)).t();
      reader.copy_to(name, destination);
      EXPECT_TRUE(at::equal(destination, stored.to(type))) << name << " to " << type;
    }
  }
}

TEST_F(SafetensorsTest, CopiesIntoAParameterOutsideOfAutograd) {
  write_safetensors(
      path, {{"w", at::ones({3})}, {"scalar", at::scalar_tensor(2.0, at::kFloat)}, {"empty", at::zeros({0, 4})}});
  const SafetensorsReader reader(path);
  const at::Tensor parameter = at::zeros({3}).requires_grad_(true);
  reader.copy_to("w", parameter);
  EXPECT_TRUE(at::equal(parameter, at::ones({3})));
  EXPECT_EQ(parameter.grad_fn(), nullptr);
  const at::Tensor scalar = at::zeros({});
  reader.copy_to("scalar", scalar);
  EXPECT_EQ(scalar.item<float>(), 2.0F);
  reader.copy_to("empty", at::zeros({0, 4}));
  reader.copy_to("w", at::empty({3}, at::TensorOptions(at::kMeta)));
}

TEST_F(SafetensorsTest, RefusesToCopyAnotherShapeAnotherTypeOrAnUnknownName) {
  write_safetensors(path, {{"w", at::ones({2, 3})}, {"ids", at::arange(3)}});
  const SafetensorsReader reader(path);
  const auto error = [&](const std::string& name, const at::Tensor& destination) {
    return testing::value_error_of([&] { reader.copy_to(name, destination); });
  };
  EXPECT_THAT(error("w", at::zeros({3, 2})),
              AllOf(HasSubstr(path.string()), HasSubstr("tensor 'w' has shape [2, 3], not the expected [3, 2]")));
  EXPECT_THAT(error("w", at::zeros({6})), HasSubstr("has shape [2, 3]"));
  EXPECT_THAT(error("ids", at::zeros({3})), HasSubstr("tensor 'ids' is of type I64; F16, BF16, F32 or F64 is needed"));
  EXPECT_THAT(error("v", at::zeros({3})), HasSubstr("has no tensor 'v'"));
  EXPECT_THAT(testing::value_error_of([&] { reader.read("v"); }), HasSubstr("has no tensor 'v'"));
}

TEST_F(SafetensorsTest, AcceptsWhatTheReferenceReaderAccepts) {
  EXPECT_EQ(header_error("   {}"), kNoError);
  EXPECT_EQ(header_error("\n{}\n "), kNoError);
  EXPECT_EQ(header_error(R"({"a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}})", "1234"), kNoError);
  EXPECT_EQ(header_error(R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"), kNoError);
  EXPECT_EQ(header_error(R"({"\u0061":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"), kNoError);
  EXPECT_EQ(entry_error("F4", "[8]", "[0,4]"), kNoError);
  EXPECT_EQ(header_error(entry("F6_E2M3", "[4]", "[0,3]"), "123"), kNoError);
  // Tensors without elements may stand at any border.
  EXPECT_EQ(
      header_error(
          R"({"z":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},"__metadata__":{},)"
          R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
          "1234"),
      kNoError);
}

TEST_F(SafetensorsTest, TypesThatLibTorchLacksAreListedButNotRead) {
  const SafetensorsReader reader(write(file_of(entry("F4", "[8]", "[0,4]"), "1234")));
  EXPECT_EQ(reader.tensors().at("a").dtype, "F4");
  EXPECT_THAT(testing::value_error_of([&] { reader.read("a"); }), HasSubstr("type F4, which LibTorch cannot hold"));
}

TEST_F(SafetensorsTest, BooleansOtherThanZeroAndOneAreRefused) {
  const SafetensorsReader reader(write(file_of(entry("BOOL", "[2]", "[0,2]"), std::string("\1\2"))));
  EXPECT_THAT(testing::value_error_of([&] { reader.read("a"); }), HasSubstr("bytes other than 0 and 1"));
}

TEST_F(SafetensorsTest, RefusesFilesThatAreMissingShortOrCut) {
  EXPECT_EQ(testing::value_error_of([&] { SafetensorsReader{path}; }), path.string() + ": No such file or directory");
  EXPECT_THAT(testing::value_error_of([&] { SafetensorsReader{folder.path()}; }), HasSubstr("is not a regular file"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(testing::value_error_of([&] { SafetensorsReader{folder / "pipe"}; }), HasSubstr("is not a regular file"));
  EXPECT_THAT(error_of(""), HasSubstr("is no safetensors file: 0 bytes"));
  EXPECT_THAT(error_of("1234567"), HasSubstr("is no safetensors file: 7 bytes"));
  EXPECT_THAT(error_of(file_of("{}", "", 3)), HasSubstr("is cut: a header of 3 bytes is announced, the file has 10"));
  const std::string whole = unhex(kReferenceFile);
  for (std::size_t size = 0; size < whole.size(); size += 5)
    EXPECT_NE(error_of(whole.substr(0, size)), kNoError) << size;
  EXPECT_THAT(error_of(whole.substr(0, whole.size() - 1)), HasSubstr("is cut: tensor 'mask' ends at byte 63"));
}

TEST_F(SafetensorsTest, RefusesHeadersOfImpossibleLength) {
  for (const std::uint64_t length : {std::uint64_t{100'000'001}, std::uint64_t{1} << 40, ~std::uint64_t{0} - 1}) {
    EXPECT_THAT(error_of(file_of("{}", "", length)), HasSubstr("at most 100000000 are allowed"));
  }
  EXPECT_THAT(error_of(file_of("{}", "", 0)), HasSubstr("the header is not a JSON object"));
}

TEST_F(SafetensorsTest, RefusesHeadersThatAreNoJsonObjectOfTheRightForm) {
  EXPECT_THAT(header_error("[]"), HasSubstr("the header is not a JSON object"));
  EXPECT_THAT(header_error("\xef\xbb\xbf{}"), HasSubstr("the header is not a JSON object"));
  EXPECT_THAT(header_error(std::string("{}\0", 3)), HasSubstr("the header is not a JSON object"));
  EXPECT_THAT(header_error("{}x"), HasSubstr("the header is not valid JSON"));
  EXPECT_THAT(header_error("{"), HasSubstr("the header is not valid JSON"));
  EXPECT_THAT(header_error("{\"a\xff\":{}}"), HasSubstr("the header is not valid JSON"));
  EXPECT_THAT(header_error(R"({"a":1})"), HasSubstr("header entry 'a': the number 1 is not allowed here"));
  EXPECT_THAT(header_error(R"({"a":null})"), HasSubstr("null is not allowed here"));
  EXPECT_THAT(header_error(R"({"a":[]})"), HasSubstr("a list is not allowed here"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[0]}})"),
              HasSubstr("'a': lacks one of dtype, shape, data_offsets"));
  EXPECT_THAT(header_error(R"({"a":{"stride":[0]}})"), HasSubstr("'a', 'stride': is not one of dtype, shape"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":["F32"]}})"), HasSubstr("'dtype': a list is not allowed here"));
  EXPECT_THAT(header_error(R"({"__metadata__":{"step":1}})"),
              HasSubstr("'__metadata__', 'step': the number 1 is not allowed here"));
  EXPECT_THAT(header_error(R"({"__metadata__":{"a":{"b":"c"}}})"), HasSubstr("an object is not allowed here"));
}

TEST_F(SafetensorsTest, RefusesDoubledNames) {
  const std::string tensor = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_THAT(header_error("{" + tensor + "," + tensor + "}", "1234"), HasSubstr("header entry 'a': stands twice"));
  EXPECT_THAT(header_error(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("stands twice"));
  EXPECT_THAT(header_error(R"({"__metadata__":{"k":"1","k":"2"}})"), HasSubstr("'k': stands twice"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","dtype":"F32"}})"), HasSubstr("'dtype': stands twice"));
}

TEST_F(SafetensorsTest, RefusesNestingAndListsWithoutEnd) {
  EXPECT_THAT(header_error("{\"a\":" + std::string(1'000'000, '[')), HasSubstr("a list is not allowed here"));
  std::string objects = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) objects += "{\"dtype\":";
  EXPECT_THAT(header_error(objects), HasSubstr("an object is not allowed here"));
  std::string ones = "[1";
  for (int i = 0; i < 100'000; ++i) ones += ",1";
  EXPECT_THAT(header_error(entry("U8", ones + "]", "[0,1]"), "1"), HasSubstr("more than 64 numbers"));
}

TEST_F(SafetensorsTest, QuotesAnEndlessNameOnlyInPart) {
  const std::string error = header_error("{\"" + std::string(1'000'000, 'n') + "\":1}");
  EXPECT_THAT(error, HasSubstr("nnn...'"));
  EXPECT_LT(error.size(), 500U);
}

TEST_F(SafetensorsTest, RefusesNumbersThatAreNoSizes) {
  EXPECT_THAT(entry_error("F32", "[-1]", "[0,4]"), HasSubstr("'shape': the number -1 is not allowed here"));
  EXPECT_THAT(entry_error("F32", "[1.0]", "[0,4]"), HasSubstr("the number '1.0' is not allowed here"));
  EXPECT_THAT(entry_error("F32", "[1]", "[0,-4]"), HasSubstr("'data_offsets': the number -4 is not allowed here"));
  EXPECT_THAT(entry_error("F32", "[18446744073709551616]", "[0,4]"), HasSubstr("is not allowed here"));
  EXPECT_THAT(entry_error("F32", "[18446744073709551615]", "[0,4]"),
              HasSubstr("dimension 18446744073709551615 is too large"));
  EXPECT_THAT(entry_error("F32", "[1]", "[0]"), HasSubstr("must be [begin, end]"));
  EXPECT_THAT(entry_error("F32", "[1]", "[0,4,4]"), HasSubstr("must be [begin, end]"));
}

TEST_F(SafetensorsTest, RefusesSizesThatOverflow) {
  for (const char* shape : {"[4611686018427387904,4]", "[4611686018427387904,4,0]", "[0,4611686018427387904,4]",
                            "[9223372036854775807]", "[4294967296,4294967296]"}) {
    EXPECT_THAT(header_error(entry("F32", shape, "[0,0]")), HasSubstr("tensor 'a': impossible shape")) << shape;
  }
  EXPECT_THAT(entry_error("F4", "[7]", "[0,4]"), HasSubstr("impossible shape"));
}

TEST_F(SafetensorsTest, RefusesOffsetsThatDisagreeWithTheShape) {
  EXPECT_THAT(entry_error("F32", "[2]", "[0,4]"),
              HasSubstr("tensor 'a': shape [2] of F32 needs 8 bytes, but data_offsets are [0, 4]"));
  EXPECT_THAT(entry_error("F32", "[1]", "[4,0]"), HasSubstr("data_offsets are [4, 0]"));
  EXPECT_THAT(entry_error("F32", "[1]", "[18446744073709551615,3]"), HasSubstr("data_offsets are"));
  EXPECT_THAT(entry_error("F32", "[1]", "[18446744073709551610,18446744073709551614]"), HasSubstr("is cut"));
  EXPECT_THAT(entry_error("F32", "[1000000000000]", "[0,4000000000000]"), HasSubstr("is cut"));
  EXPECT_THAT(entry_error("C128", "[1]", "[0,4]"), HasSubstr("tensor 'a': unknown type 'C128'"));
}

TEST_F(SafetensorsTest, RefusesHolesOverlapsAndTrailingBytes) {
  const auto two = [](const char* first, const char* second) {
    return std::string(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)") + first +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(header_error(two("[2,4]", "[0,2]"), "1234"), kNoError);
  EXPECT_THAT(header_error(two("[0,2]", "[3,5]"), "12345"),
              HasSubstr("'b' begins at byte 3, leaving a hole after byte 2"));
  EXPECT_THAT(header_error(two("[1,3]", "[3,5]"), "12345"),
              HasSubstr("'a' begins at byte 1, leaving a hole after byte 0"));
  EXPECT_THAT(header_error(two("[0,2]", "[1,3]"), "123"),
              HasSubstr("'b' begins at byte 1, inside the tensor before it"));
  EXPECT_THAT(header_error(two("[0,2]", "[0,2]"), "12"), HasSubstr("inside the tensor before it"));
  EXPECT_THAT(header_error(two("[0,2]", "[2,4]"), "12345"), HasSubstr("1 bytes after the last tensor belong to none"));
  EXPECT_THAT(header_error("{}", "1"), HasSubstr("1 bytes after the last tensor belong to none"));
}

TEST_F(SafetensorsTest, FlippedBitOfTheHeaderIsRefusedOrReadButNeverCrashes) {
  const std::string whole = unhex(kReferenceFile);
  for (std::size_t byte = 0; byte < 8 + 0x240; ++byte) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << byte % 7));
    if (error_of(damaged) != kNoError) continue;
    const SafetensorsReader reader(path);
    for (const auto& [name, info] : reader.tensors()) EXPECT_EQ(reader.read(name).nbytes(), info.end - info.begin);
  }
}

TEST_F(SafetensorsTest, MovedReaderKeepsItsFile) {
  write_safetensors(path, {{"w", at::ones({3})}});
  SafetensorsReader first(path);
  std::filesystem::remove(path);
  const SafetensorsReader second(std::move(first));
  EXPECT_TRUE(at::equal(second.read("w"), at::ones({3})));
}

TEST_F(SafetensorsTest, WriterRefusesWhatAFileCannotHold) {
  const at::Tensor one = at::ones({1});
  EXPECT_THROW(write_safetensors(path, {{"a", one}, {"a", one}}), c10::Error);
  EXPECT_THROW(write_safetensors(path, {{"__metadata__", one}}), c10::Error);
  EXPECT_THROW(write_safetensors(path, {{"a", at::empty({1}, at::TensorOptions(at::kMeta))}}), c10::Error);
  EXPECT_THROW(write_safetensors(path, {{"a", at::zeros({1}, at::kComplexDouble)}}), c10::Error);
  EXPECT_THROW(write_safetensors(path, {{"a\xff", one}}), c10::Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(SafetensorsTest, WriterNamesPathAndErrnoAndKeepsTheOldFile) {
  write_safetensors(path, {{"w", at::ones({3})}});
  rlimit old = {};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small = {1 << 16, old.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::string error;
  try {
    write_safetensors(path, {{"w", at::zeros({1 << 20})}});
  } catch (const c10::Error& caught) {
    error = caught.what_without_backtrace();
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(error, AllOf(HasSubstr(path.string()), HasSubstr("File too large (errno 27)")));
  EXPECT_TRUE(at::equal(SafetensorsReader(path).read("w"), at::ones({3})));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);

  EXPECT_THROW(write_safetensors(folder / "missing" / "model.safetensors", {}), c10::Error);
}

}  // namespace
}  // namespace tempo::model
