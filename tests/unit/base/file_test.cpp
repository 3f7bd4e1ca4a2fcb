#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <random>

#include "support/child.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr ExitCode kCode = ExitCode::data;

class FileTest : public ::testing::Test {
 protected:
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / "a.txt";
};

TEST_F(FileTest, WhatIsWrittenIsRead) {
  {
    File file(path_, File::Mode::create, kCode);
    file.write("one\n");
    File moved = std::move(file);
    moved.write(std::string("two\0\n", 5));
    moved.sync();
    moved.close();
  }
  EXPECT_EQ(read_text(path_, kCode), std::string("one\ntwo\0\n", 9));
  File(path_, File::Mode::append, kCode).write("three\n");
  EXPECT_EQ(File(path_, File::Mode::read, kCode).size(), 15);
  std::array<std::byte, 100> bytes{};
  File file(path_, File::Mode::read, kCode);
  EXPECT_EQ(file.read(std::span(bytes).first(3)), 3);
  EXPECT_EQ(file.read(bytes), 12);
  EXPECT_EQ(file.read(bytes), 0);
  EXPECT_EQ(file.read_at(std::span(bytes).first(5), 8), 5);
  EXPECT_EQ(std::memcmp(bytes.data(), "\nthre", 5), 0);
  EXPECT_EQ(file.read_at(bytes, 9), 6);
  EXPECT_EQ(file.read_at(bytes, 99), 0);
  File(path_, File::Mode::create, kCode).write("four");
  EXPECT_EQ(read_text(path_, kCode), "four");
}

// Large reads are divided into pieces.
TEST_F(FileTest, LargeFilesAreReadWhole) {
  std::string text(std::size_t{40} << 20U, '\0');
  for (std::size_t i = 0; i < text.size(); i += 4099) text[i] = static_cast<char>(1 + i % 127);
  std::ofstream(path_, std::ios::binary) << text;
  const File file(path_, File::Mode::read, ExitCode::data);
  std::string read(text.size() - 5, 'x');
  EXPECT_EQ(file.read_at(std::as_writable_bytes(std::span(read)), 5), read.size());
  EXPECT_TRUE(read == text.substr(5));
  EXPECT_TRUE(read_text(path_, ExitCode::data) == text);
}

TEST_F(FileTest, ReplacingChangesTheWholeFile) {
  std::random_device random;
  for (int round = 0; round < 10; ++round) {
    const std::string text(random() % 100'000, static_cast<char>('a' + round));
    replace_file(path_, text, kCode);
    EXPECT_EQ(read_text(path_, kCode), text);
    EXPECT_EQ(entries(), 1);
  }
}

TEST_F(FileTest, AReplacementThatFailsLeavesTheOldFile) {
  replace_file(path_, "old", kCode);
  EXPECT_EQ(run_in_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit file_size{10, 10};
              if (::setrlimit(RLIMIT_FSIZE, &file_size) != 0) throw std::runtime_error("cannot set the limit");
              error_text(kCode, [&] { replace_file(path_, "a longer text", kCode); });
              ::_exit(::testing::Test::HasFailure() ? 1 : 0);
            }),
            0);
  EXPECT_EQ(read_text(path_, kCode), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, ErrorsNameThePathAndTheReason) {
  const fs::path missing = folder_.path() / "missing" / "a.txt";
  EXPECT_THAT(error_text(kCode, [&] { read_text(missing, kCode); }),
              HasSubstr("cannot open " + missing.string() + ": No such file or directory; check the path"));
  EXPECT_THAT(error_text(kCode, [&] { File(missing, File::Mode::create, kCode); }), HasSubstr("cannot create "));
  EXPECT_THAT(error_text(kCode, [&] { replace_file(missing, "", kCode); }), HasSubstr("No such file or directory"));
  EXPECT_THAT(error_text(kCode, [&] { sync_folder(missing, kCode); }), HasSubstr("No such file or directory"));
  EXPECT_THAT(error_text(kCode, [&] { read_text(folder_.path(), kCode); }), HasSubstr("is not a regular file"));
  EXPECT_THAT(error_text(kCode, [&] { File("/dev/full", File::Mode::append, kCode).write("a"); }),
              HasSubstr("cannot write /dev/full: No space left on device; free disk space"));
  replace_file(path_, "", kCode);
  EXPECT_THAT(error_text(kCode, [&] { make_folders(path_, kCode); }), HasSubstr("Not a directory"));
  EXPECT_THAT(error_text(kCode, [&] { make_folders(path_ / "below", kCode); }), HasSubstr("Not a directory"));
}

TEST_F(FileTest, OnlyRegularFilesOfPlausibleSizeAreRead) {
  const fs::path fifo = folder_.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0666), 0);
  for (const fs::path& path : {fifo, fs::path("/dev/zero"), folder_.path()}) {
    EXPECT_THAT(error_text(kCode, [&] { read_text(path, kCode); }),
                HasSubstr(path.string() + " is not a regular file; check the path"));
  }
  for (const File::Mode mode : {File::Mode::create, File::Mode::append}) {
    EXPECT_THAT(error_text(kCode, [&] { File(fifo, mode, kCode); }), HasSubstr("No such device or address"));
  }
  replace_file(path_, "", kCode);
  fs::resize_file(path_, std::uintmax_t{100} << 30U);  // sparse
  EXPECT_THAT(error_text(kCode, [&] { read_text(path_, kCode); }),
              HasSubstr("a.txt: has 100.0 GiB, more than the maximum of 1.0 GiB; replace or remove it"));
  fs::resize_file(path_, 1025);
  EXPECT_THAT(error_text(kCode, [&] { read_text(path_, kCode, 1024); }), HasSubstr("more than the maximum of 1.0 KiB"));
  fs::resize_file(path_, 1024);
  EXPECT_EQ(read_text(path_, kCode, 1024).size(), 1024);
}

TEST_F(FileTest, LinksAreReplacedAndNeverWrittenThrough) {
  const fs::path other = folder_.path() / "other";
  replace_file(other, "not to be touched", kCode);
  fs::create_symlink(other, path_);
  for (const File::Mode mode : {File::Mode::create, File::Mode::append, File::Mode::create_new}) {
    EXPECT_THROW(File(path_, mode, kCode), Error);
  }
  EXPECT_THAT(error_text(kCode, [&] { File(path_, File::Mode::create, kCode); }),
              HasSubstr("it is a symbolic link, which is not followed"));
  replace_file(path_, "new", kCode);
  EXPECT_FALSE(fs::is_symlink(path_));
  EXPECT_EQ(read_text(path_, kCode), "new");
  EXPECT_EQ(read_text(other, kCode), "not to be touched");
  EXPECT_EQ(entries(), 2);
}

// In a folder like /tmp, where others may have put what has the name of a file of ours.
TEST_F(FileTest, NothingOfOthersIsWrittenTo) {
  const fs::path mine = folder_.path() / "mine";
  replace_file(mine, "not to be touched", kCode);
  fs::create_hard_link(mine, path_);
  for (const File::Mode mode : {File::Mode::create, File::Mode::append}) {
    { const File allowed(path_, File::Mode::append, kCode); }
    fs::permissions(folder_.path(), fs::perms::all);
    EXPECT_THAT(error_text(kCode, [&] { File(path_, mode, kCode); }),
                HasSubstr("a.txt was there before and has a second name, in a folder that all users may write to"));
    fs::permissions(folder_.path(), fs::perms::owner_all);
  }
  EXPECT_EQ(read_text(mine, kCode), "not to be touched");
  fs::remove(path_);
  replace_file(path_, "theirs", kCode);
  if (::chown(path_.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root can make files of other users";
  { const File allowed(path_, File::Mode::append, kCode); }
  fs::permissions(folder_.path(), fs::perms::all);
  EXPECT_THAT(error_text(kCode, [&] { File(path_, File::Mode::create, kCode); }),
              HasSubstr("and belongs to user 12345"));
  EXPECT_EQ(read_text(path_, kCode), "theirs");
  replace_file(path_, "ours", kCode);
  File(path_, File::Mode::append, kCode).write(" too");
  EXPECT_EQ(read_text(path_, kCode), "ours too");
}

TEST_F(FileTest, AReadOnlyFileSystemIsNotAMatterOfOwners) {
  EXPECT_THAT(error_text(kCode, [] { file_error(kCode, "create", "a", EROFS); }),
              AllOf(HasSubstr("is mounted read-only"), Not(HasSubstr("owner")), Not(HasSubstr("permission"))));
}

TEST_F(FileTest, TemporaryFilesAreRemoved) {
  replace_file(path_, "kept", kCode);
  fs::create_directories(folder_.path() / ".tmp-b" / "c");
  fs::create_symlink(path_, folder_.path() / ".tmp-d");
  remove_temporaries(folder_.path(), kCode);
  EXPECT_EQ(entries(), 1);
  EXPECT_EQ(read_text(path_, kCode), "kept");
}

TEST_F(FileTest, FoldersAreMadeWithTheirParents) {
  const fs::path deep = folder_.path() / "a" / "b" / "c";
  make_folders(deep, kCode);
  make_folders(deep, kCode);
  make_folders(deep / "", kCode);
  sync_folder(deep, kCode);
  EXPECT_TRUE(fs::is_directory(deep));
}

}  // namespace
}  // namespace ddp
