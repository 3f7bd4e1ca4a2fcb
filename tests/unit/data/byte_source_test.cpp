#include "data/sources/byte_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/random.h"
#include "unit/data/files.h"

namespace ddp {
namespace {

using testing::HasSubstr;

// Reads the whole file in pieces of random sizes.
Bytes read_all(const std::filesystem::path& path, std::uint64_t seed = 1) {
  ByteSource source(path);
  Random random(seed, 1);
  Bytes all;
  for (;;) {
    Bytes piece(1 + static_cast<std::size_t>(random.below(random.below(10) == 0 ? 400000 : 3000)));
    const std::size_t bytes = source.read(piece);
    all.insert(all.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(bytes));
    if (bytes < piece.size()) return all;
  }
}

TEST(ByteSource, GivesTheSameBytesPlainGzippedAndInSeveralMembers) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "file";
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{1500000}}) {
    Bytes bytes = random_bytes(size, size + 7);
    for (std::size_t i = 0; i < size / 2; ++i) bytes[i] &= 3U;  // half of the data compresses well
    write_file(path, bytes);
    EXPECT_EQ(read_all(path), bytes);
    write_file(path, gzip(bytes));
    EXPECT_EQ(read_all(path), bytes);
    Bytes members = gzip(std::span(bytes).first(size / 3));
    const Bytes rest = gzip(std::span(bytes).subspan(size / 3));
    members.insert(members.end(), rest.begin(), rest.end());
    write_file(path, members);
    EXPECT_EQ(read_all(path), bytes);
  }
}

TEST(ByteSource, SkipsAsFarAsTheFileGoes) {
  const TemporaryFolder folder;
  const Bytes bytes = random_bytes(700000, 3);
  write_file(folder.path() / "file.gz", gzip(bytes));
  ByteSource source(folder.path() / "file.gz");
  EXPECT_EQ(source.skip(600001), 600001U);
  Bytes next(10);
  EXPECT_EQ(source.read(next), 10U);
  EXPECT_TRUE(std::equal(next.begin(), next.end(), bytes.begin() + 600001));
  EXPECT_EQ(source.skip(1000000), 700000U - 600011U);
  EXPECT_EQ(source.skip(1), 0U);
}

TEST(ByteSource, NamesAFileThatCannotBeOpenedOrRead) {
  const TemporaryFolder folder;
  const auto missing = folder.path() / "missing";
  EXPECT_THAT(error_of(ExitCode::data, [&] { ByteSource source(missing); }),
              testing::AllOf(HasSubstr(missing.string()), HasSubstr("No such file")));
  EXPECT_THAT(error_of(ExitCode::data, [&] { ByteSource source(folder.path()); }), HasSubstr("not a regular file"));
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of(ExitCode::data, [&] { ByteSource source(pipe); }), HasSubstr("not a regular file"));
}

TEST(ByteSource, EveryTruncationOfGzipDataIsFound) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "file.gz";
  const Bytes packed = gzip(random_bytes(300, 5));
  for (std::size_t size = 2; size < packed.size(); ++size) {
    write_file(path, std::span(packed).first(size));
    EXPECT_THAT(error_of(ExitCode::data, [&] { read_all(path); }),
                testing::AllOf(HasSubstr(path.string()), HasSubstr("truncated")))
        << size << " bytes";
  }
}

// A flipped bit either changes nothing that is read (such as the header's time stamp) or is detected by the checksum.
TEST(ByteSource, EveryFlippedBitOfGzipDataIsHarmlessOrFound) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "file.gz";
  Bytes bytes = random_bytes(300, 6);
  for (std::size_t i = 0; i < 150; ++i) bytes[i] &= 1U;
  const Bytes packed = gzip(bytes);
  int found = 0;
  for (std::size_t bit = 16; bit < packed.size() * 8; ++bit) {  // the first two bytes identify gzip
    Bytes damaged = packed;
    damaged[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    write_file(path, damaged);
    try {
      EXPECT_EQ(read_all(path), bytes) << "bit " << bit;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      ++found;
    }
  }
  EXPECT_GT(found, static_cast<int>(packed.size() - 18) * 8);  // 18 bytes of header and trailer
}

TEST(ByteSource, BytesAfterTheGzipDataAreFound) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "file.gz";
  Bytes packed = gzip(random_bytes(300, 7));
  packed.push_back(42);
  write_file(path, packed);
  error_of(ExitCode::data, [&] { read_all(path); });
}

}  // namespace
}  // namespace ddp
