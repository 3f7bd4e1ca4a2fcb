#include "data/images/image_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/file.h"
#include "base/status/heartbeat.h"
#include "data/pipeline/augmentation.h"
#include "data/pipeline/sample_key.h"
#include "data/sources/image_folder.h"
#include "unit/data/files.h"
#include "unit/data/golden_images.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::int64_t kCachedSide = 40;
constexpr Shape kCachedShape = {3, kCachedSide, kCachedSide};

class ImageCacheTest : public testing::Test {
 protected:
  ImageCacheTest() {
    for (const std::string split : {"train", "val"}) {
      for (const std::string name : {"photo.jpg", "rgb.png", "cmyk.jpg", "grey.jpg"}) {
        fs::create_directories(data() / split / "one");
        fs::copy_file(kGoldenImages / name, data() / split / "one" / name);
      }
    }
  }
  fs::path data() const { return root_.path() / "data"; }
  fs::path directory() const { return root_.path() / "cache"; }
  ImageFolder open(bool cached, std::int64_t allowed = 0) const {
    const FolderListing listing = list_image_folder(data());
    ImageFolderConfig config{.preprocessing = {.shape = kCachedShape}, .threads = 2};
    if (cached) config.cache = directory();
    return {listing.train, listing.classes, config, std::make_shared<BadSamples>(allowed)};
  }
  fs::path cache_file() const {
    fs::path found;
    for (const auto& entry : fs::directory_iterator(directory())) {
      EXPECT_NE(entry.path().extension(), ".part");
      if (entry.path().extension() == ".cache") found = entry.path();
    }
    return found;
  }
  // Opening the folder must replace a cache file with this damage, and images must read as before.
  void expect_made_anew(const std::string& what) const {
    const auto before = content_of(cache_file());
    const ImageFolder data = open(true);
    EXPECT_NE(content_of(cache_file()), before) << what;
    Bytes pixels(kCachedShape.size());
    Bytes expected(kCachedShape.size());
    for (std::int64_t i = 0; i < data.size(); ++i) {
      EXPECT_EQ(data.read_plain(i, pixels), i);
      open(true).read_plain(i, expected);
      ASSERT_EQ(pixels, expected) << what;
    }
  }
  // The file is replaced by one of this user.
  void expect_made_anew_by_owner(const fs::path& path) const {
    EXPECT_EQ(open(true).size(), 4);
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, ::geteuid());
  }

 private:
  TemporaryFolder root_;
};

double mean_apart(const Bytes& a, const Bytes& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(static_cast<int>(a[i]) - static_cast<int>(b[i]));
  return sum / static_cast<double>(a.size());
}

// Images are resized twice instead of once, which softens edges slightly.
TEST_F(ImageCacheTest, GivesNearlyWhatDecodingGives) {
  const ImageFolder decoded = open(false);
  const ImageFolder cached = open(true);
  Bytes by_decoding(kCachedShape.size());
  Bytes by_cache(kCachedShape.size());
  for (std::int64_t i = 0; i < decoded.size(); ++i) {
    decoded.read_plain(i, by_decoding);
    cached.read_plain(i, by_cache);
    EXPECT_LT(mean_apart(by_decoding, by_cache), 1.5) << decoded.file(i);
    EXPECT_NE(by_decoding, by_cache) << "the image is not of the cache";
    for (std::uint32_t draw = 0; draw < 20; ++draw) {
      const auto choose = [&](const ImageSize& size) {
        EXPECT_EQ(size, (ImageSize{118, 90}));
        Region region = random_region(size, sample_key(1, 1, draw));
        region.mirrored = draw % 2 == 0;
        return region;
      };
      decoded.read_region(i, choose, by_decoding);
      cached.read_region(i, choose, by_cache);
      EXPECT_LT(mean_apart(by_decoding, by_cache), 3) << decoded.file(i);
    }
  }
}

TEST_F(ImageCacheTest, IsMadeOnceAndThenNeedsNoImageFile) {
  Bytes first(kCachedShape.size());
  open(true).read_plain(2, first);
  const auto time = fs::last_write_time(cache_file());
  const ImageFolder again = open(true);
  EXPECT_EQ(fs::last_write_time(cache_file()), time);
  fs::remove(data() / "train" / "one" / "photo.jpg");
  fs::remove(data() / "train" / "one" / "grey.jpg");
  Bytes second(kCachedShape.size());
  again.read_plain(2, second);
  EXPECT_EQ(first, second);
}

TEST_F(ImageCacheTest, OtherTruncatedAndDamagedFilesAreReplaced) {
  open(true);
  const Bytes good = content_of(cache_file());
  const auto changed = [&](std::size_t at) {
    Bytes bytes = good;
    bytes[at] ^= 0x10;
    return bytes;
  };
  // Every part of the header and the entries is checked.
  for (const std::size_t at : {0, 8, 17, 25, 33, 41, 50, 60, 64, 75, 64 + 4 * 32 - 1}) {
    write_file(cache_file(), changed(at));
    expect_made_anew("byte " + std::to_string(at));
  }
  for (const std::size_t left : {std::size_t{0}, std::size_t{63}, std::size_t{100}, good.size() - 1}) {
    write_file(cache_file(), std::span(good).first(left));
    expect_made_anew("cut to " + std::to_string(left));
  }
  Bytes longer = good;
  longer.push_back(0);
  write_file(cache_file(), longer);
  expect_made_anew("one byte more");
  write_file(cache_file(), random_bytes(5000, 1));
  expect_made_anew("something else");
}

TEST_F(ImageCacheTest, ChangedFilesAreDecodedAnew) {
  open(true);
  fs::copy_file(kGoldenImages / "full-chroma.jpg", data() / "train" / "one" / "photo.jpg",
                fs::copy_options::overwrite_existing);
  expect_made_anew("another size");
  const fs::path file = data() / "train" / "one" / "rgb.png";
  fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(1));
  expect_made_anew("another time");
}

// Damage within an image is detected when it is read, and the original file is decoded instead.
TEST_F(ImageCacheTest, ADamagedImageIsDecodedFromItsFile) {
  const ImageFolder cached = open(true);
  Bytes bytes = content_of(cache_file());
  for (std::size_t at = 64 + 4 * 32 + 100; at < bytes.size(); at += 1000) bytes[at] ^= 1;
  {
    // Written in place, as a failing disk would.
    std::fstream file(cache_file(), std::ios::binary | std::ios::in | std::ios::out);
    file.write(static_cast<const char*>(static_cast<const void*>(bytes.data())),
               static_cast<std::streamsize>(bytes.size()));
  }
  const ImageFolder decoded = open(false);
  Bytes by_cache(kCachedShape.size());
  Bytes by_decoding(kCachedShape.size());
  for (std::int64_t i = 0; i < 4; ++i) {
    cached.read_plain(i, by_cache);
    decoded.read_plain(i, by_decoding);
    EXPECT_EQ(by_cache, by_decoding);
  }
  EXPECT_TRUE(cache_file().empty());  // it was removed
}

TEST_F(ImageCacheTest, ABadImageIsNamedWhenItIsRead) {
  write_file(data() / "train" / "one" / "grey.jpg", Bytes{1, 2});
  const ImageFolder cached = open(true);
  Bytes pixels(kCachedShape.size());
  EXPECT_THAT(error_of(ExitCode::data, [&] { cached.read_plain(1, pixels); }), HasSubstr("grey.jpg: is not a JPEG"));
  EXPECT_EQ(open(true, 1).read_plain(1, pixels), 2);
}

TEST_F(ImageCacheTest, WhoComesMeanwhileWaits) {
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([this] {
      Bytes pixels(kCachedShape.size());
      EXPECT_EQ(open(true).read_plain(3, pixels), 3);
    });
  }
  ranks.clear();
  EXPECT_FALSE(cache_file().empty());
}

// The process that holds the lock may take hours; --hang-timeout does not apply while it does.
TEST_F(ImageCacheTest, WaitingForAnotherProcessIsNoHang) {
  open(true);
  const fs::path path = cache_file();
  fs::remove(path);
  const Descriptor lock(::open((path.string() + ".lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  const std::thread::id main_thread = std::this_thread::get_id();
  bool waited = false;
  {
    const std::jthread other([&] {
      while (!waited) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const Doing doing = what_is_done(main_thread);
        waited = doing.long_work && doing.text.find("waiting for another process that makes") != std::string::npos;
      }
      // It makes progress as long as the file grows.
      const std::uint64_t before = heartbeats();
      for (std::size_t size = 1; heartbeats() == before; ++size) {
        write_file(path.string() + ".part", Bytes(size));
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      ::flock(lock.get(), LOCK_UN);
    });
    EXPECT_EQ(open(true).size(), 4);
  }
  EXPECT_TRUE(waited);
  EXPECT_FALSE(cache_file().empty());
}

TEST_F(ImageCacheTest, LinksAreNeverWrittenThrough) {
  open(true);
  const fs::path path = cache_file();
  const fs::path mine = data() / "mine";
  const Bytes content = {1, 2, 3};
  for (const std::string suffix : {".part", ".lock", ""}) {
    const fs::path link = path.string() + suffix;
    fs::remove(path);
    fs::remove(link);
    write_file(mine, content);
    fs::create_symlink(mine, link);
    if (suffix == ".lock") {
      EXPECT_THAT(error_of(ExitCode::data, [&] { open(true); }), HasSubstr("a symbolic link, which is not followed"));
      fs::remove(link);
    } else {
      EXPECT_EQ(open(true).size(), 4);
      EXPECT_EQ(fs::symlink_status(path).type(), fs::file_type::regular) << suffix;
    }
    EXPECT_EQ(content_of(mine), content) << suffix;
  }
}

TEST_F(ImageCacheTest, SpecialFilesInItsPlaceDoNotBlock) {
  open(true);
  const fs::path path = cache_file();
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(open(true).size(), 4);
  const fs::path lock = path.string() + ".lock";
  fs::remove(path);
  fs::remove(lock);
  ASSERT_EQ(::mkfifo(lock.c_str(), 0600), 0);
  EXPECT_THAT(error_of(ExitCode::data, [&] { open(true); }), HasSubstr("cache.lock is not a regular file"));
}

// In a folder like /tmp anybody may have made them.
TEST_F(ImageCacheTest, FilesOfOtherUsersAreNotRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make files of other users";
  constexpr ::uid_t kOther = 65533;
  open(true);
  const fs::path path = cache_file();
  ASSERT_EQ(::chown(path.c_str(), kOther, kOther), 0);
  const auto time = fs::last_write_time(path);
  // Nobody else writes here.
  EXPECT_EQ(open(true).size(), 4);
  EXPECT_EQ(fs::last_write_time(path), time);
  fs::permissions(directory(), fs::perms::all);
  expect_made_anew_by_owner(path);
  const fs::path lock = path.string() + ".lock";
  ASSERT_EQ(::chown(lock.c_str(), kOther, kOther), 0);
  fs::remove(path);
  EXPECT_THAT(error_of(ExitCode::data, [&] { open(true); }), HasSubstr("belongs to another user (ID 65533)"));
}

TEST_F(ImageCacheTest, AFolderThatCannotBeWrittenIsSaid) {
  write_file(directory(), Bytes{1});
  EXPECT_THAT(error_of(ExitCode::data, [&] { open(true); }), HasSubstr("cache"));
}

}  // namespace
}  // namespace ddp
