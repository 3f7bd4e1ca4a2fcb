// All formats of pictures against Pillow (tests/campaigns/odd_pictures.py --golden), EXIF orientation, and what is no picture.
#include "data/formats/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "data/formats/encode.h"
#include "data/formats/orientation.h"
#include "data/images/image_decoder.h"
#include "data/index/folder_listing.h"
#include "data/sources/catalog.h"
#include "unit/data/files.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

const fs::path kOddPictures = fs::path(DDP_SOURCE_DIR) / "tests" / "golden" / "odd";

RegionChooser whole_picture() {
  return [](const ImageSize& size) { return centre_region(size, 1, size); };
}

// "WIDTH HEIGHT CRC", or "refused".
std::string reading_of(const Bytes& file, bool upright = true) {
  Raster raster;
  const RegionChooser all = whole_picture();
  try {
    decode_picture(file, {.choose = all, .pixels = {1, 1}, .whole = true, .verify = true, .upright = upright}, raster);
  } catch (const BadImage& bad) {
    return std::string("refused: ") + bad.what();
  }
  const auto bytes = static_cast<uInt>(raster.width * raster.height * 3);
  return fmt::format("{} {} {}", raster.width, raster.height, crc32(0, raster.pixels.data(), bytes));
}

bool has_library(const std::string& name) { return missing_library(suffix_of(name)).library.empty(); }

TEST(Formats, AllPicturesAreReadAsPillowReadsThem) {
  std::ifstream list(kOddPictures / "pixels.txt");
  std::size_t read = 0;
  for (std::string line; std::getline(list, line);) {
    const std::string name = line.substr(0, line.find(' '));
    const std::string expected = line.substr(name.size() + 1);
    const std::string got = reading_of(content_of(kOddPictures / name));
    if (!has_library(name)) {
      EXPECT_THAT(got, HasSubstr("this program was built without")) << name;
    } else if (expected == "refused") {
      EXPECT_THAT(got, HasSubstr("floating-point samples")) << name;
    } else {
      EXPECT_EQ(got, expected) << name;
    }
    ++read;
  }
  EXPECT_GE(read, 80U);
}

// A picture with four quarters of their own, turned by each orientation.
TEST(Formats, RegionsAreThoseOfTheUprightPicture) {
  int turned = 0;
  for (int number = 0; number < 12; ++number) {
    for (const std::string kind : {"jpeg-{}.jpg", "png-{}.png"}) {
      const Bytes file = content_of(kOddPictures / fmt::format(fmt::runtime(kind), number));
      const Orientation orientation = orientation_of(file);
      turned += orientation.turns() ? 1 : 0;
      ImageDecoder decoder;
      decoder.load(file);
      const RegionChooser all = whole_picture();
      const Raster upright = decoder.decode({.choose = all, .pixels = {1, 1}, .whole = true});
      for (const Region& share : {Region{0.1, 0.2, 0.5, 0.7}, Region{0.5, 0.0, 0.5, 0.4}}) {
        const RegionChooser part = [&](const ImageSize& size) {
          EXPECT_EQ(size, (ImageSize{upright.width, upright.height}));
          const auto w = static_cast<double>(size.width);
          const auto h = static_cast<double>(size.height);
          return Region{share.x * w, share.y * h, share.width * w, share.height * h};
        };
        Bytes got(std::size_t{3} * 8 * 8);
        Bytes expected(got.size());
        decoder.decode_exact(part, {3, 8, 8}, got);
        ExactResampler resampler;
        resampler.run(upright.view(), part({upright.width, upright.height}), {3, 8, 8}, expected);
        EXPECT_EQ(got, expected) << kind << number;
        decoder.decode(part, {3, 8, 8}, got);
        double apart = 0;
        for (std::size_t i = 0; i < got.size(); ++i)
          apart += std::abs(static_cast<int>(got[i]) - static_cast<int>(expected[i]));
        // Filters at the edge of a region differ, and cropped JPEG files lack neighbours.
        EXPECT_LE(apart / static_cast<double>(got.size()), 40) << kind << number;
      }
    }
  }
  EXPECT_GE(turned, 12);
}

// The pixels of a JPEG as they lie in the file, by hand.
TEST(Formats, OrientationsTurnAndAreIgnoredOnRequest) {
  Raster stored{{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6}, 3, 2, {0, 0, 1, 2}};
  const std::array<std::pair<ImageSize, std::string>, 8> expected = {{{{3, 2}, "123456"},
                                                                      {{3, 2}, "321654"},
                                                                      {{3, 2}, "654321"},
                                                                      {{3, 2}, "456123"},
                                                                      {{2, 3}, "142536"},
                                                                      {{2, 3}, "415263"},
                                                                      {{2, 3}, "635241"},
                                                                      {{2, 3}, "362514"}}};
  for (unsigned value = 1; value <= 8; ++value) {
    Raster raster = stored;
    Bytes scratch;
    const Orientation orientation = orientation_of_value(value);
    turn(raster, orientation, scratch);
    const auto& [size, text] = expected[value - 1];
    ASSERT_EQ((ImageSize{raster.width, raster.height}), size);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(raster.pixels[3 * i], text[i] - '0') << value;
    const Region back = stored_region(raster.region, {3, 2}, orientation);
    EXPECT_EQ(back.x, 0);
    EXPECT_EQ(back.width, 1);
    EXPECT_EQ(back.height, 2);
  }
  for (const unsigned value : {0U, 9U, 65535U}) EXPECT_FALSE(orientation_of_value(value).turns());
  int different = 0;
  for (int number = 0; number < 12; ++number) {
    const Bytes file = content_of(kOddPictures / fmt::format("jpeg-{}.jpg", number));
    different += reading_of(file, true) != reading_of(file, false) ? 1 : 0;
  }
  EXPECT_GE(different, 6);
}

// Samples are scaled to 16 bits; those that sBIT names are the upper ones.
TEST(Formats, APngOfTwelveBitsIsReadByItsUpperBits) {
  const Bytes file = content_of(fs::path(DDP_SOURCE_DIR) / "tests" / "golden" / "images" / "grey16.png");
  const std::string plain = reading_of(file);
  Bytes chunk = {0, 0, 0, 1, 's', 'B', 'I', 'T', 12};
  const auto crc = crc32(0, chunk.data() + 4, 5);
  for (const unsigned shift : {24U, 16U, 8U, 0U}) chunk.push_back(static_cast<std::uint8_t>(crc >> shift));
  Bytes twelve = file;
  twelve.insert(twelve.begin() + 33, chunk.begin(), chunk.end());
  EXPECT_EQ(reading_of(twelve), plain);
}

// A smooth picture, as JPEG is made for.
Bytes smooth_pixels(std::int64_t width, std::int64_t height, std::int64_t channels) {
  Bytes pixels;
  for (std::int64_t i = 0; i < width * height * channels; ++i) {
    const double x = static_cast<double>(i / channels % width) / static_cast<double>(width);
    const double y = static_cast<double>(i / channels / width) / static_cast<double>(height);
    pixels.push_back(static_cast<std::uint8_t>(255 * (x + y + static_cast<double>(i % channels)) / 4));
  }
  return pixels;
}

Bytes as_bytes(const std::string& file) { return {file.begin(), file.end()}; }

TEST(Formats, EncodedPicturesAreReadAgain) {
  for (const std::int64_t channels : {1, 3}) {
    const Bytes pixels = smooth_pixels(37, 21, channels);
    const RasterView view{pixels.data(), 37, 21, channels};
    const RegionChooser all = whole_picture();
    const auto furthest = [&](const std::string& file) {
      Raster raster;
      decode_picture(as_bytes(file), {.choose = all, .pixels = {1, 1}, .whole = true}, raster);
      EXPECT_EQ(raster.width, 37);
      EXPECT_EQ(raster.height, 21);
      int most = 0;
      for (std::size_t i = 0; i < 37 * 21; ++i) {
        for (std::size_t c = 0; c < 3; ++c) {
          const auto own = static_cast<std::size_t>(channels);
          most = std::max(most, std::abs(raster.pixels[3 * i + c] - pixels[own * i + (own == 3 ? c : 0)]));
        }
      }
      return most;
    };
    EXPECT_EQ(furthest(encode_png(view)), 0);
    // Quantisation at quality 90, and colours at half the resolution.
    EXPECT_LE(furthest(encode_jpeg(view, 90)), 12);
    EXPECT_GT(encode_jpeg(view, 95).size(), encode_jpeg(view, 30).size());
    EXPECT_EQ(content_suffix(as_bytes(encode_png(view))), "png");
    EXPECT_EQ(content_suffix(as_bytes(encode_jpeg(view, 90))), "jpg");
  }
}

TEST(Formats, TheContentTellsTheSuffix) {
  std::size_t read = 0;
  for (const auto& entry : fs::directory_iterator(kOddPictures)) {
    const Bytes file = content_of(entry.path());
    if (reading_of(file).starts_with("refused")) continue;
    EXPECT_NE(content_suffix(file), "") << entry.path();
    ++read;
  }
  EXPECT_GT(read, 20U);
}

TEST(Formats, WhatIsNoPictureIsNamed) {
  const auto refusal = [](const std::string& text) { return reading_of(Bytes(text.begin(), text.end())); };
  using namespace std::string_literals;
  EXPECT_THAT(refusal("<!DOCTYPE html><html>404"), StartsWith("refused: is a web page (HTML)"));
  EXPECT_THAT(refusal("\xEF\xBB\xBF\n<html>"), StartsWith("refused: is a web page (HTML)"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\noid sha256:1"),
              AllOf(StartsWith("refused: is a Git LFS pointer"), HasSubstr("git lfs pull")));
  EXPECT_THAT(refusal("\0\5\x16\7\0\2"s), HasSubstr("metadata of macOS"));
  EXPECT_THAT(refusal(std::string(5000, '\0')), HasSubstr("only zero bytes"));
  EXPECT_THAT(refusal("<?xml version=\"1.0\"?><svg/>"), HasSubstr("SVG"));
  EXPECT_THAT(refusal("not found"), HasSubstr("is a text file"));
  EXPECT_THAT(refusal("%PDF-1.7"), HasSubstr("PDF"));
  EXPECT_THAT(refusal("\0\0\0\x18"
                      "ftypisom"s),
              HasSubstr("is a video"));
  EXPECT_THAT(refusal("\1\2\3"), HasSubstr("despite its name"));
}

// Truncated files and random damage: read or refused, never anything else.
TEST(Formats, DamageIsReadOrRefused) {
  for (const char* name : {"bmp-0.bmp", "fields_bmp-1.bmp", "gif-0.gif", "larger_screen-0.gif", "tiff-0.tiff",
                           "tiff-3.tiff", "animated_webp-0.webp", "webp-0.webp"}) {
    const Bytes whole = content_of(kOddPictures / name);
    ASSERT_FALSE(whole.empty());
    for (std::size_t left = 0; left < whole.size(); left += 1 + whole.size() / 60) {
      const std::string answer = reading_of(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(left)));
      EXPECT_THAT(answer, StartsWith("refused: is ")) << name << " " << left;
    }
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      Bytes damaged = whole;
      const Bytes random = random_bytes(4, seed);
      damaged[(random[0] * 256U + random[1]) % damaged.size()] = random[2];
      damaged[random[3] % std::min<std::size_t>(damaged.size(), 64)] ^= random[2];
      EXPECT_NE(reading_of(damaged), "");
    }
  }
}

// Rejected by the header, before memory is allocated.
TEST(Formats, EnormousPicturesAreRefused) {
  Bytes bmp = content_of(kOddPictures / "fields_bmp-0.bmp");
  for (const std::size_t at : {20U, 24U}) bmp[at] = 0x70;  // sides of 7 million
  EXPECT_THAT(reading_of(bmp), HasSubstr("more than the maximum of 67108864"));
  if (gif_is_supported()) {
    Bytes gif = content_of(kOddPictures / "gif-0.gif");
    for (const std::size_t at : {6U, 7U, 8U, 9U}) gif[at] = 0xFF;
    EXPECT_THAT(reading_of(gif), HasSubstr("is 65535x65535 pixels large"));
  }
}

void put(const fs::path& folder, const std::string& name, const Bytes& file) { write_file(folder / name, file); }

TEST(Formats, FoldersHavePicturesOfAllFormatsUnlessTheRunIsOlder) {
  const TemporaryFolder root;
  const Bytes jpeg = content_of(kOddPictures / "jpeg-0.jpg");
  for (const std::string part : {"train", "val"}) {
    const fs::path folder = root.path() / part / "a";
    put(folder, "1.jpg", jpeg);
    put(folder, "2.BMP", content_of(kOddPictures / "bmp-0.bmp"));
    put(folder, "3.gif", content_of(kOddPictures / "gif-0.gif"));
    put(folder, "4.tif", content_of(kOddPictures / "tiff-0.tiff"));
    put(folder, "Thumbs.db", {1});
    put(folder, "._1.jpg", {1});
    put(folder, ".ipynb_checkpoints/1-checkpoint.jpg", jpeg);
    put(folder, "notes.txt", {1});
  }
  const FolderListing listing = list_image_folder(root.path());
  EXPECT_EQ(listing.train.files.size(), 4U);
  EXPECT_EQ(passed_over_text(listing.train.passed_over),
            "4 files (1 ._* of macOS, 1 .txt, 1 Thumbs.db, 1 in .ipynb_checkpoints)");
  EXPECT_EQ(list_image_folder(root.path(), {.all_formats = false}).train.files.size(), 1U);
  if (has_library("4.tif") && has_library("3.gif")) {
    const DataSets data =
        open_dataset("folder", root.path().string(), 0, 0, 1, {.preprocessing = {.shape = {3, 8, 8}}});
    EXPECT_EQ(data.passed_over, "8 files (2 ._* of macOS, 2 .txt, 2 Thumbs.db, 2 in .ipynb_checkpoints)");
  }
}

// Otherwise a run would read the pictures of another one.
TEST(Formats, AnImageCacheKnowsWhetherItsPicturesAreUpright) {
  const TemporaryFolder root;
  std::vector<Bytes> files;
  for (const std::string part : {"train", "val"}) {
    for (int number = 0; number < 12; ++number) {
      const std::string name = fmt::format("jpeg-{}.jpg", number);
      put(root.path() / "data" / part / "a", name, content_of(kOddPictures / name));
    }
  }
  const auto read_all = [&](bool upright, const std::string& cache) {
    const DataSets data =
        open_dataset("folder", (root.path() / "data").string(), 0, 0, 1,
                     {.preprocessing = {.shape = {3, 8, 8}, .upright = upright}, .image_cache = cache});
    Bytes all;
    for (const Dataset* set : {data.train.get(), data.test.get()}) {
      for (std::int64_t i = 0; i < set->size(); ++i) {
        Bytes pixels(set->shape().size());
        EXPECT_EQ(set == data.train.get() ? set->read_plain(i, pixels) : set->read(i, pixels), i);
        all.insert(all.end(), pixels.begin(), pixels.end());
      }
    }
    return all;
  };
  const std::string cache = (root.path() / "cache").string();
  const Bytes upright = read_all(true, cache);
  const Bytes stored = read_all(false, cache);
  EXPECT_NE(upright, stored);
  EXPECT_EQ(read_all(true, cache), upright);
  // Evaluation has the bytes of decoding.
  const Bytes decoded = read_all(false, "off");
  EXPECT_TRUE(std::equal(stored.begin() + static_cast<std::ptrdiff_t>(stored.size() / 2), stored.end(),
                         decoded.begin() + static_cast<std::ptrdiff_t>(decoded.size() / 2)));
}

}  // namespace
}  // namespace ddp
