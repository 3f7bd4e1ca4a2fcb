#include "data/sources/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/sources/catalog.h"
#include "unit/data/files.h"

namespace ddp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Records of random pixels with labels that count from `first`.
Bytes records(std::size_t count, std::size_t first) {
  Bytes bytes = random_bytes(count * 3073, first + 1);
  for (std::size_t i = 0; i < count; ++i) bytes[i * 3073] = static_cast<std::uint8_t>((first + i) % 10);
  return bytes;
}

// Writes a whole data set with `each` records per file.
void write_set(const std::filesystem::path& folder, std::size_t each) {
  for (std::size_t file = 0; file < 5; ++file) {
    write_file(folder / ("data_batch_" + std::to_string(file + 1) + ".bin"), records(each, file * each));
  }
  write_file(folder / "test_batch.bin", records(each, 100));
}

TEST(Cifar10, ReadsTheBatchesInOrderFromAnyOfTheUsualFolders) {
  for (const std::string place : {"cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10", "."}) {
    const TemporaryFolder folder;
    write_set(folder.path() / place, 3);
    const DataSets data = open_dataset("cifar10", folder.path().string(), 0, 2, 1);
    ASSERT_EQ(data.train->size(), 15) << place;
    ASSERT_EQ(data.test->size(), 2);
    EXPECT_EQ(data.train->shape(), (Shape{3, 32, 32}));
    EXPECT_EQ(data.train->class_names().at(3), "cat");
    Bytes pixels(3072);
    for (std::int64_t i = 0; i < 15; ++i) {
      const Bytes file = records(3, static_cast<std::size_t>(i / 3 * 3));
      const auto begin = file.begin() + i % 3 * 3073;
      data.train->read(i, pixels);
      EXPECT_EQ(data.train->label(i), *begin);
      EXPECT_TRUE(std::equal(pixels.begin(), pixels.end(), begin + 1)) << i;
    }
  }
}

TEST(Cifar10, ALimitEndsInTheMiddleOfAFileAndReadsNoFurther) {
  const TemporaryFolder folder;
  write_set(folder.path(), 4);
  std::filesystem::remove(folder.path() / "data_batch_3.bin");
  EXPECT_EQ(open_cifar({{folder.path()}, folder.path(), Split::train, 6})->size(), 6);
  EXPECT_THAT(error_of(ExitCode::data,
                       [&] {
                         open_cifar({{folder.path()}, folder.path(), Split::train, 9});
                       }),
              AllOf(HasSubstr("data_batch_3.bin: missing"), HasSubstr("launch/get-data cifar10")));
}

TEST(Cifar10, MoreRecordsThanAreReadAtOnceAndGzipAreFine) {
  const TemporaryFolder folder;
  write_set(folder.path(), 1);
  const Bytes many = records(2001, 7);
  std::filesystem::remove(folder.path() / "test_batch.bin");
  write_file(folder.path() / "test_batch.bin.gz", gzip(many));
  const auto data = open_cifar({{folder.path()}, folder.path(), Split::test, 0});
  ASSERT_EQ(data->size(), 2001);
  Bytes pixels(3072);
  data->read(2000, pixels);
  EXPECT_TRUE(std::equal(pixels.begin(), pixels.end(), many.end() - 3072));
}

TEST(Cifar10, DamagedFilesAreNamedWithTheReason) {
  const TemporaryFolder folder;
  const auto message = [&](const Bytes& test_batch) {
    write_set(folder.path(), 2);
    write_file(folder.path() / "test_batch.bin", test_batch);
    return error_of(ExitCode::data, [&] { open_cifar({{folder.path()}, folder.path(), Split::test, 0}); });
  };
  Bytes truncated = records(1001, 0);
  truncated.pop_back();
  EXPECT_THAT(message(truncated), AllOf(HasSubstr("test_batch.bin: its size of 3076072 bytes"), HasSubstr("3073")));
  EXPECT_THAT(message({}), HasSubstr("test_batch.bin: is empty"));
  Bytes mislabelled = records(1200, 0);
  mislabelled[std::size_t{1100} * 3073] = 10;
  EXPECT_THAT(message(mislabelled), AllOf(HasSubstr("record 1100 (byte 3380300) is 10"), HasSubstr("0..9")));
}

// The documented format: a coarse and a fine label, then the pixels.
Bytes fine_records(std::size_t count, std::size_t first) {
  Bytes bytes = random_bytes(count * 3074, first + 1);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i * 3074] = static_cast<std::uint8_t>(i % 20);
    bytes[i * 3074 + 1] = static_cast<std::uint8_t>((first + 37 * i) % 100);
  }
  return bytes;
}

TEST(Cifar100, ReadsTheFineLabels) {
  for (const std::string place : {"cifar-100-binary", "cifar100/cifar-100-binary", "cifar100", "."}) {
    const TemporaryFolder folder;
    const Bytes train = fine_records(5, 90);
    write_file(folder.path() / place / "train.bin", train);
    write_file(folder.path() / place / "test.bin.gz", gzip(fine_records(3, 2)));
    const DataSets data = open_dataset("cifar100", folder.path().string(), 4, 0, 1);
    ASSERT_EQ(data.train->size(), 4) << place;
    EXPECT_EQ(data.test->size(), 3);
    EXPECT_EQ(data.train->name(), "cifar100");
    EXPECT_EQ(data.train->classes(), 100);
    EXPECT_TRUE(data.train->class_names().empty());
    EXPECT_EQ(data.test->label(1), 39);
    Bytes pixels(3072);
    for (std::int64_t i = 0; i < 4; ++i) {
      data.train->read(i, pixels);
      EXPECT_EQ(data.train->label(i), (90 + 37 * i) % 100);
      EXPECT_TRUE(std::equal(pixels.begin(), pixels.end(), train.begin() + i * 3074 + 2)) << i;
    }
    std::string names;
    for (int i = 0; i < 100; ++i) names += "class" + std::to_string(i) + "\n";
    write_file(folder.path() / place / "fine_label_names.txt", Bytes(names.begin(), names.end()));
    EXPECT_EQ(open_dataset("cifar100", folder.path().string(), 4, 0, 1).train->class_names().at(17), "class17");
  }
}

TEST(Cifar100, DamagedFilesAreNamedWithTheReason) {
  const TemporaryFolder folder;
  write_file(folder.path() / "test.bin", fine_records(3, 2));
  const auto message = [&] {
    return error_of(ExitCode::data, [&] { open_dataset("cifar100", folder.path().string(), 0, 0, 1); });
  };
  EXPECT_THAT(message(), AllOf(HasSubstr("train.bin: missing"), HasSubstr("launch/get-data cifar100")));
  Bytes bytes = fine_records(3, 2);
  bytes[3075] = 100;
  write_file(folder.path() / "train.bin", bytes);
  EXPECT_THAT(message(), HasSubstr("the label of record 1 (byte 3075) is 100, outside 0..99"));
  bytes.pop_back();
  write_file(folder.path() / "train.bin", bytes);
  EXPECT_THAT(message(), AllOf(HasSubstr("3074"), HasSubstr("CIFAR-100's binary format")));
}

TEST(Cifar10, AFolderWithoutItSaysWhereItLooked) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of(ExitCode::data, [&] { open_dataset("cifar10", folder.path().string(), 0, 0, 1); }),
              AllOf(HasSubstr("cifar10/cifar-10-batches-bin"), HasSubstr("--dataset folder")));
}

}  // namespace
}  // namespace ddp
