#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "support/errors.h"
#include "support/temporary_folder.h"
#include "unit/checkpoint/sample.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;

// Builds a file from its header text and number of data bytes.
std::string file_of(const std::string& header, std::size_t data_bytes, std::uint64_t claimed_length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &claimed_length, 8);
  return bytes + header + std::string(data_bytes, 'x');
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return file_of(header, data_bytes, header.size());
}

std::string safetensors_error(const std::string& bytes) {
  return error_text(ExitCode::checkpoint, [&] { const SafetensorsFile file("some.safetensors", bytes); });
}

class SafetensorsTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "a.safetensors";
  std::uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

// The name of a model may be that of a file.
TEST_F(SafetensorsTest, MetadataThatIsNotUtf8IsEscaped) {
  float value = 1;
  const std::vector<TensorView> views = {{"w", {1}, &value}};
  write_safetensors(path_, views, {{"model", "mod\xE8le.onnx"}, {"step", R"(\xE8)"}});
  const SafetensorsFile file = SafetensorsFile::read(path_);
  EXPECT_EQ(file.metadata().at("model"), R"(mod\xE8le.onnx)");
  EXPECT_EQ(file.metadata().at("step"), R"(\xE8)");
}

// One of each type, with exactly representable values; the data of the second is at an odd place.
TEST_F(SafetensorsTest, OtherTypesOfRealNumbersAreConverted) {
  const std::string header = R"({"bf16":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},)"
                             R"("f16":{"dtype":"F16","shape":[2],"data_offsets":[6,10]},)"
                             R"("f64":{"dtype":"F64","shape":[1,1],"data_offsets":[10,18]}})";
  std::string bytes = file_of(header, 0);
  bytes += std::string("\x80\x3f\x20\xc0\0\0", 6);  // 1, -2.5, 0
  bytes += std::string("\x00\xc4\x01\x00", 4);      // -4, 2^-24
  const double third = 1.0 / 3;
  bytes.append(reinterpret_cast<const char*>(&third), sizeof third);
  EXPECT_THAT(safetensors_error(bytes), HasSubstr("is of type BF16, only F32 is supported"));
  const SafetensorsFile file("some.safetensors", bytes, TensorTypes::any);
  std::array<float, 3> bf16{};
  std::array<float, 2> f16{};
  float f64 = 0;
  const std::vector<TensorView> views = {{"bf16", {3}, bf16.data()}, {"f16", {2}, f16.data()}, {"f64", {1, 1}, &f64}};
  file.check_same(views);
  file.check_finite();
  file.copy_to(views);
  EXPECT_EQ(bf16, (std::array<float, 3>{1, -2.5F, 0}));
  EXPECT_EQ(f16, (std::array<float, 2>{-4, 1.0F / (1 << 24)}));
  EXPECT_EQ(f64, static_cast<float>(third));
  // The first half becomes an infinity.
  bytes[bytes.size() - 12 + 1] = '\x7c';
  bytes[bytes.size() - 12] = '\0';
  EXPECT_THAT(error_text(ExitCode::checkpoint,
                         [&] { SafetensorsFile("some.safetensors", bytes, TensorTypes::any).check_finite(); }),
              HasSubstr("tensor 'f16' contains non-finite values"));
}

TEST_F(SafetensorsTest, TensorsAreRoundedToHalfPrecision) {
  std::array<float, 5> values = {1.0F / 3, -2.5F, 70000, 0, 1e-7F};
  const std::vector<TensorView> views = {{"w", {5}, values.data()}};
  const CounterTensor counter{"steps", 7};
  const std::array<float, 5> before = values;
  for (const StoredFloats floats : {StoredFloats::fp16, StoredFloats::bf16}) {
    values = before;
    const FileDigest digest = write_safetensors(path_, views, {}, std::span(&counter, 1), floats);
    EXPECT_EQ(digest, digest_of_file(path_));
    const auto file = SafetensorsFile::read(path_, TensorTypes::any);
    EXPECT_EQ(file.tensors()[1].type, floats == StoredFloats::fp16 ? "F16" : "BF16");
    EXPECT_EQ(file.tensors()[1].end - file.tensors()[1].begin, 10U);
    file.copy_to(views);
    EXPECT_EQ(values, floats == StoredFloats::fp16
                          ? (std::array<float, 5>{0.333251953125F, -2.5F, INFINITY, 0, 0x1p-23F})
                          : (std::array<float, 5>{0.333984375F, -2.5F, 70144, 0, 0x1.aep-24F}));
  }
}

TEST_F(SafetensorsTest, RandomTensorsComeBackBitForBit) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<std::int64_t>> shapes(random_() % 8);
    for (auto& shape : shapes) {
      shape.resize(random_() % 5);
      for (auto& extent : shape) extent = static_cast<std::int64_t>(random_() % 6);
    }
    SampleTensors tensors(random_, shapes, "tensor \"quoted\" \xc3\xa9 ");
    const TensorMetadata metadata = {{"format", "pt"}, {"note", "line\nbreak"}};
    const FileDigest digest = write_safetensors(path_, tensors.views(), metadata);
    EXPECT_EQ(digest, digest_of_file(path_));

    const auto file = SafetensorsFile::read(path_);
    EXPECT_EQ(file.metadata(), metadata);
    EXPECT_EQ(file.tensors().size(), shapes.size());
    const auto bits = tensors.bits();
    tensors.clear();
    file.check_same(tensors.views());
    file.copy_to(tensors.views());
    EXPECT_EQ(tensors.bits(), bits);
  }
}

TEST_F(SafetensorsTest, FileIsTheFormatsBytes) {
  std::vector<float> values = {1.0F, -2.0F, 0.5F};
  const std::vector<TensorView> views = {{"b", {2}, values.data()}, {"a", {}, values.data() + 2}};
  write_safetensors(path_, views, {{"format", "pt"}});
  const std::string header = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("a":{"dtype":"F32","shape":[],"data_offsets":[8,12]}})";
  std::string expected = file_of(header + std::string((8 - header.size() % 8) % 8, ' '), 12);
  std::memcpy(expected.data() + expected.size() - 12, values.data(), 12);
  EXPECT_EQ(read_bytes(path_), expected);
}

TEST_F(SafetensorsTest, CountersAreWrittenAndReadOnRequestOnly) {
  std::vector<float> values = {1.0F, -2.0F, 0.5F};
  const std::vector<TensorView> views = {{"a", {3}, values.data()}};
  const std::vector<CounterTensor> counters = {{"n", 258}};
  write_safetensors(path_, views, {}, counters);
  const std::string bytes = read_bytes(path_);
  EXPECT_EQ(bytes.substr(bytes.size() - 20, 8), std::string("\2\1\0\0\0\0\0\0", 8));
  EXPECT_THAT(safetensors_error(bytes), HasSubstr("tensor 'n' is of type I64, only F32 is supported"));
  const SafetensorsFile file(path_, bytes, TensorTypes::any);
  EXPECT_FALSE(file.tensors()[0].real());
  EXPECT_TRUE(file.tensors()[1].real());
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { file.check_same(views); }),
              HasSubstr("tensor 'n' of the checkpoint"));
  const std::vector<TensorView> wrong = {{"n", {}, values.data()}};
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { file.check_same(wrong); }),
              HasSubstr("'n' is of type I64, not F32"));
  values.assign(3, 0.0F);
  file.copy_to(views);
  EXPECT_EQ(values, (std::vector<float>{1.0F, -2.0F, 0.5F}));
}

TEST_F(SafetensorsTest, HeaderIsPaddedToEightBytes) {
  float value = 0;
  for (std::size_t length = 1; length <= 8; ++length) {
    const std::vector<TensorView> views = {{std::string(length, 'n'), {1}, &value}};
    write_safetensors(path_, views, {});
    EXPECT_EQ((read_bytes(path_).size() - sizeof(value)) % 8, 0);
  }
}

TEST_F(SafetensorsTest, ForgedHeaderLengthsAreRefused) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::uint64_t right = header.size();
  EXPECT_EQ(SafetensorsFile("right", file_of(header, 4)).tensors().size(), 1);
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{1}, right - 1, right + 1, right + 4, right + 5, right + 12, ~std::uint64_t{0},
        ~std::uint64_t{0} - 7, std::uint64_t{1} << 63U, std::uint64_t{1} << 32U, std::uint64_t{100'000'001}}) {
    EXPECT_THAT(safetensors_error(file_of(header, 4, length)), HasSubstr("some.safetensors: ")) << length;
  }
}

TEST_F(SafetensorsTest, EveryTruncationIsRefused) {
  Sample sample(random_, 1);
  write_safetensors(path_, sample.model.views(), {{"format", "pt"}});
  const std::string bytes = read_bytes(path_);
  for (std::size_t size = 0; size < bytes.size(); ++size) safetensors_error(bytes.substr(0, size));
  EXPECT_THAT(safetensors_error(bytes + "!"), HasSubstr("1 bytes follow the last tensor"));
}

TEST_F(SafetensorsTest, DamagedHeadersNeverDoMoreThanThrow) {
  Sample sample(random_, 1);
  write_safetensors(path_, sample.model.views(), {{"format", "pt"}});
  const std::string bytes = read_bytes(path_);
  const std::size_t header_bits = (bytes.size() - sample.model.bits().size() * 4) * 8;
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = bytes;
    for (auto flips = 1 + random_() % 3; flips > 0; --flips)
      damaged = with_flipped_bit(damaged, random_() % header_bits);
    try {
      SafetensorsFile("some", damaged).check_same(sample.model.views());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint);
      ++refused;
    }
  }
  // The remaining flips are in metadata and spaces.
  EXPECT_GT(refused, 1000);
}

TEST_F(SafetensorsTest, BadHeadersAreNamed) {
  const auto one = [](const std::string& fields) { return "{\"w\":{" + fields + "}}"; };
  struct Case {
    std::string header;
    std::size_t data_bytes;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"not json at all", 0, "the header is not a JSON object"},
      {"[1, 2]", 0, "the header is not a JSON object"},
      {"", 0, "the header is not a JSON object"},
      {"{} trailing", 0, "the header is not a JSON object"},
      {"{\"a\": \"\xff\"}", 0, "the header is not a JSON object"},
      {std::string(100'000, '['), 0, "the header is not a JSON object"},
      {R"({"__metadata__":{"a":1}})", 0, "the metadata 'a' is not a string"},
      {R"({"__metadata__":"a"})", 0, "the metadata is not an object"},
      {R"({"w":3})", 0, "invalid header entry for tensor 'w'"},
      {one(R"("dtype":"F32","shape":[1])"), 4, "invalid header entry for tensor 'w'"},
      {one(R"("dtype":"F32","data_offsets":[0,4])"), 4, "invalid header entry for tensor 'w'"},
      {one(R"("shape":[1],"data_offsets":[0,4])"), 4, "invalid header entry for tensor 'w'"},
      {one(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"), 4, "invalid header entry for tensor 'w'"},
      {one(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4, "invalid header entry for tensor 'w'"},
      {one(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4, "invalid header entry for tensor 'w'"},
      {one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4, "invalid header entry for tensor 'w'"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), 4, "invalid header entry for tensor 'w'"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4, "invalid header entry for tensor 'w'"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"), 4, "invalid header entry for tensor 'w'"},
      {one(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])"), 4, "invalid header entry"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616])"), 4, "invalid header entry"},
      {one(R"("dtype":"F16","shape":[2],"data_offsets":[0,4])"), 4, "tensor 'w' is of type F16, only F32 is supported"},
      {one(R"("dtype":"F32","shape":[2,3],"data_offsets":[0,20])"), 20, "of shape [2, 3] has 20 bytes"},
      {one(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), 0, "has 0 bytes"},
      {one(R"("dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4])"), 4, "has 4 bytes"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 4, "tensor 'w' ends at byte 8 of 4"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8, "there is a gap before tensor 'w'"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 8, "4 bytes follow the last tensor"},
      {one(R"("dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4])"), 4, "names 'shape' twice"},
      {R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, "tensor 'w' overlaps the one before it"},
      {R"({"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "tensor 'w' overlaps the one before it"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "names 'w' twice"},
  };
  for (const Case& bad : cases) {
    EXPECT_THAT(safetensors_error(file_of(bad.header, bad.data_bytes)), HasSubstr(bad.message))
        << bad.header.substr(0, 200);
  }
}

TEST_F(SafetensorsTest, FirstDifferenceIsNamed) {
  std::vector<float> values(12);
  const std::vector<TensorView> views = {{"a", {2, 3}, values.data()}, {"b", {6}, values.data() + 6}};
  write_safetensors(path_, views, {});
  const auto file = SafetensorsFile::read(path_);
  file.check_same(views);
  const auto difference = [&](const std::vector<TensorView>& expected) {
    return error_text(ExitCode::checkpoint, [&] { file.check_same(expected); });
  };
  EXPECT_THAT(difference({{"a", {3, 2}, nullptr}, {"c", {6}, nullptr}}),
              HasSubstr("tensor 'a' has shape [2, 3] in the checkpoint, [3, 2] in this run"));
  EXPECT_THAT(difference({{"a", {2, 3}, nullptr}, {"c", {6}, nullptr}}),
              HasSubstr("tensor 'c' of this run is not in the checkpoint"));
  EXPECT_THAT(difference({{"a", {2, 3}, nullptr}}), HasSubstr("tensor 'b' of the checkpoint is not in this run"));
  EXPECT_THAT(difference({}), HasSubstr("tensor 'a' of the checkpoint is not in this run"));
}

TEST_F(SafetensorsTest, NamesMayNotRepeatNorBeReserved) {
  float value = 0;
  const std::vector<TensorView> twice = {{"a", {1}, &value}, {"a", {1}, &value}};
  EXPECT_THAT(error_text(ExitCode::internal, [&] { write_safetensors(path_, twice, {}); }), HasSubstr("'a'"));
  const std::vector<TensorView> reserved = {{"__metadata__", {1}, &value}};
  EXPECT_THAT(error_text(ExitCode::internal, [&] { write_safetensors(path_, reserved, {}); }),
              HasSubstr("__metadata__"));
}

TEST_F(SafetensorsTest, FailedWritesGiveTheSystemsReason) {
  Sample sample(random_, 1);
  const auto write_to = [&](const std::filesystem::path& path) {
    return error_text(ExitCode::checkpoint, [&] { write_safetensors(path, sample.model.views(), {}); });
  };
  EXPECT_THAT(write_to("/dev/full"), HasSubstr("cannot write /dev/full: No space left on device; free disk space"));
  EXPECT_THAT(write_to(folder_.path() / "missing" / "a"), HasSubstr("missing/a: No such file or directory"));
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { SafetensorsFile::read(folder_.path()); }),
              HasSubstr("is not a regular file"));
}

TEST(DigestTest, AgreesWithPublishedValues) {
  // XXH3-128 with seed 0 of the empty string, from the reference implementation's test vectors.
  EXPECT_EQ(digest_of({}), (FileDigest{0, "99aa06d3014798d86001c324468d497f"}));
  const std::string text(100'000, 'a');
  const auto bytes = std::as_bytes(std::span(text));
  Hasher in_pieces;
  in_pieces.update(bytes.first(12'345));
  in_pieces.update(bytes.subspan(12'345));
  EXPECT_EQ(in_pieces.finish(), digest_of(bytes));
}

}  // namespace
}  // namespace ddp
