#include "data/sources/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/random.h"
#include "data/sources/catalog.h"
#include "unit/data/allocations.h"
#include "unit/data/files.h"

namespace ddp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint32_t kIdxSide = 28;
constexpr std::size_t kImage = 784;

// The four files of a data set, for tests to damage.
class IdxFiles : public testing::Test {
 protected:
  void SetUp() override {
    for (std::uint8_t& label : train_labels) label %= 10;
    for (std::uint8_t& label : test_labels) label %= 10;
    write("train-images-idx3-ubyte", images_file(50, train_images));
    write("train-labels-idx1-ubyte.gz", gzip(labels_file(50, train_labels)));
    write("t10k-images-idx3-ubyte.gz", gzip(images_file(20, test_images)));
    write("t10k-labels-idx1-ubyte", labels_file(20, test_labels));
  }

  static Bytes images_file(std::uint32_t count, std::span<const std::uint8_t> pixels, std::uint32_t side = kIdxSide) {
    return idx_file(std::array{count, side, side}, pixels);
  }
  static Bytes labels_file(std::uint32_t count, std::span<const std::uint8_t> labels) {
    return idx_file(std::array{count}, labels);
  }
  std::filesystem::path file(const std::string& name) const { return folder_.path() / "mnist" / name; }
  void write(const std::string& name, std::span<const std::uint8_t> bytes) const { write_file(file(name), bytes); }
  void replace_images(std::span<const std::uint8_t> bytes) const { write("train-images-idx3-ubyte", bytes); }
  void replace_labels(std::span<const std::uint8_t> bytes) const { write("train-labels-idx1-ubyte.gz", bytes); }

  std::unique_ptr<Dataset> open(Split split = Split::train, std::int64_t limit = 0) const {
    return open_idx(
        {.name = "mnist", .folders = {folder_.path() / "mnist", folder_.path()}, .split = split, .limit = limit});
  }
  // Returns the error when opening the training set. A download is suggested only for missing files, because files with
  // invalid content may be the user's own.
  std::string complaint() const {
    std::string message = error_of(ExitCode::data, [this] { open(); });
    const bool missing = message.find("missing") != std::string::npos || message.starts_with("no mnist");
    EXPECT_THAT(message, HasSubstr(folder_.path().string()));
    EXPECT_THAT(message, HasSubstr(missing ? "launch/get-data mnist" : "--dataset folder"));
    EXPECT_EQ(message.find("launch/get-data") != std::string::npos, missing) << message;
    return message;
  }

  TemporaryFolder folder_;
  Bytes train_images = random_bytes(50 * kImage, 1);
  Bytes train_labels = random_bytes(50, 2);
  Bytes test_images = random_bytes(20 * kImage, 3);
  Bytes test_labels = random_bytes(20, 4);
};

void expect_holds(const Dataset& data, std::int64_t count, const Bytes& images, const Bytes& labels) {
  EXPECT_EQ(data.name(), "mnist");
  EXPECT_EQ(data.size(), count);
  EXPECT_EQ(data.shape(), (Shape{1, 28, 28}));
  EXPECT_EQ(data.classes(), 10);
  Bytes pixels(kImage);
  for (std::int64_t i = 0; i < count; ++i) {
    data.read(i, pixels);
    const auto begin = images.begin() + i * static_cast<std::ptrdiff_t>(kImage);
    EXPECT_TRUE(std::equal(pixels.begin(), pixels.end(), begin)) << "image " << i;
    EXPECT_EQ(data.label(i), labels[static_cast<std::size_t>(i)]);
  }
}

TEST_F(IdxFiles, AreReadGzippedOrNot) {
  expect_holds(*open(Split::train), 50, train_images, train_labels);
  expect_holds(*open(Split::test), 20, test_images, test_labels);
}

TEST_F(IdxFiles, ALimitKeepsTheFirstSamples) {
  expect_holds(*open(Split::train, 7), 7, train_images, train_labels);
  expect_holds(*open(Split::test, 1), 1, test_images, test_labels);
  expect_holds(*open(Split::test, 20), 20, test_images, test_labels);
  expect_holds(*open(Split::test, 1000), 20, test_images, test_labels);
}

TEST_F(IdxFiles, MayLieDirectlyInTheFolderAndBeSpelledWithADot) {
  const auto move = [this](const char* from, const char* to) {
    std::filesystem::rename(file(from), folder_.path() / to);
  };
  move("train-images-idx3-ubyte", "train-images.idx3-ubyte");
  move("train-labels-idx1-ubyte.gz", "train-labels.idx1-ubyte.gz");
  move("t10k-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz");
  move("t10k-labels-idx1-ubyte", "t10k-labels-idx1-ubyte");
  expect_holds(*open(), 50, train_images, train_labels);
}

TEST_F(IdxFiles, AMissingFolderSaysWhatWasLookedForAndHowToGetIt) {
  std::filesystem::remove_all(folder_.path() / "mnist");
  EXPECT_THAT(complaint(), AllOf(HasSubstr("train-images-idx3-ubyte[.gz]"), HasSubstr("train-labels-idx1-ubyte[.gz]"),
                                 HasSubstr((folder_.path() / "mnist").string() + " and "),
                                 HasSubstr("launch/get-data mnist " + folder_.path().string())));
}

TEST_F(IdxFiles, AMissingFileIsNamed) {
  std::filesystem::remove(file("train-labels-idx1-ubyte.gz"));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("train-labels-idx1-ubyte"), HasSubstr("missing")));
}

TEST_F(IdxFiles, ATruncatedFileIsFoundPlainAndGzippedWithAndWithoutALimit) {
  const Bytes whole = images_file(50, train_images);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{4}, std::size_t{15},
                                 std::size_t{16}, std::size_t{17}, whole.size() / 2, whole.size() - 1}) {
    const auto part = std::span(whole).first(size);
    replace_images(part);
    EXPECT_THAT(complaint(), HasSubstr("train-images-idx3-ubyte")) << size;
    error_of(ExitCode::data, [this] { open(Split::train, 3); });
    replace_images(gzip(part));  // valid gzip with too little data
    complaint();
    error_of(ExitCode::data, [this] { open(Split::train, 3); });
  }
  replace_images(std::span(whole).first(whole.size() - 1));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("truncated"), HasSubstr("50x28x28"), HasSubstr("39216 bytes"),
                                 HasSubstr("it has 39215")));
}

TEST_F(IdxFiles, AnOversizedFileIsFoundPlainAndGzippedWithAndWithoutALimit) {
  Bytes whole = images_file(50, train_images);
  whole.push_back(0);
  replace_images(whole);
  EXPECT_THAT(complaint(), HasSubstr("holds more than the 39216 bytes"));
  error_of(ExitCode::data, [this] { open(Split::train, 3); });
  replace_images(gzip(whole));
  EXPECT_THAT(complaint(), HasSubstr("holds more than the 39216 bytes"));
  error_of(ExitCode::data, [this] { open(Split::train, 3); });
}

TEST_F(IdxFiles, DamagedGzipDataIsFound) {
  Bytes packed = gzip(labels_file(50, train_labels));
  replace_labels(std::span(packed).first(packed.size() - 9));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("train-labels-idx1-ubyte.gz"), HasSubstr("truncated")));
  packed[packed.size() - 6] ^= 1U;  // a checksum bit
  replace_labels(packed);
  EXPECT_THAT(complaint(), HasSubstr("damaged near byte"));
  error_of(ExitCode::data, [this] { open(Split::train, 3); });
}

TEST_F(IdxFiles, GarbageAndWrongKindsAreFound) {
  replace_images(random_bytes(5000, 9));
  EXPECT_THAT(complaint(), HasSubstr("not an IDX file of images"));
  replace_images(labels_file(50, train_labels));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("0x00000801"), HasSubstr("0x00000803")));
  replace_images(images_file(50, train_images));
  replace_labels(images_file(50, train_images));
  EXPECT_THAT(complaint(), HasSubstr("not an IDX file of labels"));
  Bytes floats = labels_file(50, train_labels);
  floats[2] = 0x0D;
  replace_labels(floats);
  EXPECT_THAT(complaint(), HasSubstr("0x00000d01"));
}

TEST_F(IdxFiles, AForgedHeaderCannotMakeMemoryLarge) {
  constexpr std::uint32_t kMost = 0xFFFFFFFF;
  for (const auto& dimensions :
       {std::array{kMost, 28U, 28U}, std::array{kMost, 65535U, 65535U}, std::array{50U, kMost, kMost},
        std::array{50U, 0U, 28U}, std::array{1U, 65535U, 65535U}}) {
    for (const bool packed : {false, true}) {
      const Bytes forged = idx_file(dimensions, train_images);
      replace_images(packed ? gzip(forged) : forged);
      reset_largest();
      complaint();
      EXPECT_LT(allocations().largest, std::size_t{5} << 20U);
    }
  }
}

TEST_F(IdxFiles, BothSplitsMustHaveImagesOfOneSize) {
  replace_images(images_file(50, std::span(train_images).first(std::size_t{50} * 14 * 14), 14));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("images of 14x14"), HasSubstr("of 28x28")));
}

// As many classes as the labels of both splits count, and images that are no squares.
TEST_F(IdxFiles, OfOtherDataSetsHaveAnyShapeAndNumberOfClasses) {
  const std::filesystem::path other = folder_.path() / "letters";
  for (const auto& [prefix, largest] : {std::pair("train", 25), std::pair("t10k", 46)}) {
    const Bytes labels = {0, 3, static_cast<std::uint8_t>(largest)};
    write_file(other / (std::string(prefix) + "-images-idx3-ubyte"),
               idx_file(std::array{3U, 12U, 20U}, random_bytes(std::size_t{3} * 240, 5)));
    write_file(other / (std::string(prefix) + "-labels-idx1-ubyte"), idx_file(std::array{3U}, labels));
  }
  const DataSets data = open_dataset("idx", other.string(), 2, 0, 1);
  EXPECT_EQ(data.train->shape(), (Shape{1, 12, 20}));
  EXPECT_EQ(data.train->size(), 2);
  EXPECT_EQ(data.train->classes(), 47);
  EXPECT_EQ(data.test->classes(), 47);
  EXPECT_EQ(data.test->label(2), 46);
  Bytes pixels(240);
  data.test->read(1, pixels);
  const Bytes all = random_bytes(std::size_t{3} * 240, 5);
  EXPECT_TRUE(std::equal(pixels.begin(), pixels.end(), all.begin() + 240));
  EXPECT_THAT(error_of(ExitCode::data, [] { open_dataset("idx", "/nowhere", 0, 0, 1); }),
              AllOf(HasSubstr("/nowhere"), HasSubstr("--data-dir")));
}

TEST_F(IdxFiles, CountsMustMatchAndNotBeZero) {
  replace_labels(gzip(labels_file(49, std::span(train_labels).first(49))));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("50 images"), HasSubstr("49 labels")));
  replace_labels(gzip(labels_file(0, {})));
  replace_images(images_file(0, {}));
  EXPECT_THAT(complaint(), HasSubstr("holds no images"));
}

TEST_F(IdxFiles, ALabelOutOfRangeIsNamedWithItsPlace) {
  train_labels[33] = 10;
  replace_labels(gzip(labels_file(50, train_labels)));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("sample 33"), HasSubstr("byte 41"), HasSubstr("is 10, outside 0..9")));
}

TEST_F(IdxFiles, AnyDamageEndsInOneErrorOrInUnchangedLength) {
  const Bytes whole = images_file(50, train_images);
  Random random(77, 0);
  for (int trial = 0; trial < 300; ++trial) {
    Bytes damaged = random.below(2) == 0 ? whole : gzip(whole);
    for (std::uint64_t hits = 1 + random.below(4); hits > 0; --hits) {
      // Corrupts the header more often than its size warrants.
      const std::uint64_t reach = random.below(2) == 0 ? 20 : damaged.size();
      damaged[static_cast<std::size_t>(random.below(reach))] = static_cast<std::uint8_t>(random.next_u32());
    }
    if (random.below(4) == 0) damaged.resize(static_cast<std::size_t>(random.below(damaged.size())));
    write("damaged", damaged);
    try {
      const IdxArray array = read_idx(file("damaged"), 3);
      EXPECT_EQ(array.elements.size(), train_images.size());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data) << error.what();
    }
  }
}

}  // namespace
}  // namespace ddp
