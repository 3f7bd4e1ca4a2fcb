// Decoding compared with Pillow (tests/golden/make_images.py), and files that are not images.
#include "data/images/image_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "unit/data/files.h"
#include "unit/data/golden_images.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct GoldenCase {
  std::string file;
  Region region;
  std::int64_t side = 0;
  std::int64_t reduction = 1;
  std::size_t offset = 0;
};

std::vector<GoldenCase> golden_cases() {
  std::ifstream lines(kGoldenImages / "cases.txt");
  std::vector<GoldenCase> cases;
  GoldenCase c;
  while (lines >> c.file >> c.region.x >> c.region.y >> c.region.width >> c.region.height >> c.side >> c.reduction >>
         c.offset) {
    if (webp_is_supported() || !c.file.ends_with(".webp")) cases.push_back(c);
  }
  return cases;
}

struct Apart {
  double mean = 0;
  int largest = 0;
};

Apart apart(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  Apart result;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const int difference = std::abs(static_cast<int>(a[i]) - static_cast<int>(b[i]));
    result.mean += difference / static_cast<double>(a.size());
    result.largest = std::max(result.largest, difference);
  }
  return result;
}

RegionChooser always(const Region& region) {
  return [region](const ImageSize&) { return region; };
}

// One level if only rounding differs. A cropped JPEG or lossy WebP lacks neighbours for chroma smoothing, and CMYK colours are
// multiplied in another order.
TEST(ImageDecoder, ReadsWhatPillowReads) {
  const std::vector<GoldenCase> cases = golden_cases();
  ASSERT_GE(cases.size(), 50U);
  const Bytes expected = content_of(kGoldenImages / "expected.bin");
  for (const GoldenCase& c : cases) {
    const Shape shape{3, c.side, c.side};
    Bytes pixels(shape.size());
    ImageDecoder decoder;
    decoder.load(kGoldenImages / c.file);
    decoder.decode(always(c.region), shape, pixels);
    EXPECT_EQ(reduction_of(c.region, {c.side, c.side}), c.reduction);
    const Apart difference = apart(pixels, std::span(expected).subspan(c.offset, shape.size()));
    const bool jpeg = c.file.ends_with(".jpg") || c.file == "lossy.webp";
    EXPECT_LE(difference.mean, jpeg ? 0.6 : 0.3) << c.file << " to " << c.side;
    EXPECT_LE(difference.largest, jpeg ? 8 : 1) << c.file << " to " << c.side;
  }
}

// A verdict on a file: why it cannot be read, the same for every region.
std::string verdict(const Bytes& file) {
  const Shape shape{3, 8, 8};
  Bytes pixels(shape.size());
  std::string first;
  for (int part = 0; part < 10; ++part) {
    const RegionChooser choose = [part](const ImageSize& size) {
      if (part == 0) return centre_region(size, 1, size);
      const double width = static_cast<double>(size.width) / 3;
      const double height = static_cast<double>(size.height) / 3;
      return Region{(part - 1) % 3 * width, (part - 1) / 3 * height * 0.9, width, height};
    };
    for (const bool exactly : {false, true}) {
      std::string reason = "readable";
      ImageDecoder decoder;
      try {
        decoder.load(file);
        if (exactly) {
          decoder.decode_exact(choose, shape, pixels);
        } else {
          decoder.decode(choose, shape, pixels, /*verify=*/true);
        }
      } catch (const BadImage& bad) {
        reason = bad.what();
      }
      if (first.empty()) first = reason;
      EXPECT_EQ(reason, first) << "part " << part << ", exactly " << exactly;
    }
  }
  return first;
}

// The compressed data of a PNG's only IDAT chunk.
struct PngData {
  std::size_t begin = 0;
  std::size_t size = 0;
};
PngData data_of(const Bytes& png) {
  const Bytes type = {'I', 'D', 'A', 'T'};
  const auto at = std::search(png.begin(), png.end(), type.begin(), type.end());
  std::size_t size = 0;
  for (int i = 4; i > 0; --i) size = size * 256 + *(at - i);
  return {static_cast<std::size_t>(at - png.begin()) + 4, size};
}
void correct_crc(Bytes& png) {
  const PngData data = data_of(png);
  const auto crc = crc32(0, png.data() + data.begin - 4, static_cast<uInt>(data.size + 4));
  for (std::size_t i = 0; i < 4; ++i) png[data.begin + data.size + i] = static_cast<std::uint8_t>(crc >> (24 - 8 * i));
}

TEST(ImageDecoder, DamageAtTheEndOfAFileIsFoundWhateverIsReadOfIt) {
  const Bytes whole = content_of(kGoldenImages / "rgb.png");
  const PngData data = data_of(whole);
  EXPECT_EQ(verdict(whole), "readable");
  Bytes wrong_crc = whole;
  wrong_crc[data.begin + data.size] ^= 1;
  EXPECT_THAT(verdict(wrong_crc), HasSubstr("CRC"));
  Bytes wrong_checksum = whole;
  wrong_checksum[data.begin + data.size - 1] ^= 1;
  correct_crc(wrong_checksum);
  EXPECT_THAT(verdict(wrong_checksum), HasSubstr("incorrect data check"));
  Bytes shorter = whole;
  std::fill_n(shorter.begin() + static_cast<std::ptrdiff_t>(data.begin + data.size) - 300, 300, std::uint8_t{0});
  correct_crc(shorter);
  EXPECT_THAT(verdict(shorter), HasSubstr("damaged"));
  std::vector<std::string> names = {"photo.jpg", "progressive.jpg", "rgb.png", "interlaced.png", "palette.png"};
  if (webp_is_supported()) names.insert(names.end(), {"lossy.webp", "lossless.webp"});
  for (const std::string& name : names) {
    const Bytes good = content_of(kGoldenImages / name);
    const Bytes noise = random_bytes(200, good.size());
    for (std::size_t i = 0; i < 40; ++i) {
      Bytes broken = good;
      broken[broken.size() * (256 + noise[3 * i]) / 512 % broken.size()] ^=
          static_cast<std::uint8_t>(noise[3 * i + 1] | 1);
      (void)verdict(broken);
    }
  }
}

// A CMYK file without Adobe's marker is stored like one with it, and a zlib header may state a smaller window than is used.
TEST(ImageDecoder, ReadsFilesThatSayTooLittle) {
  const fs::path more = kGoldenImages.parent_path() / "preprocessed";
  const Shape shape{3, 30, 30};
  const auto pixels_of = [&](const fs::path& path) {
    Bytes pixels(shape.size());
    ImageDecoder decoder;
    decoder.load(path);
    decoder.decode([](const ImageSize& size) { return centre_region(size, 1); }, shape, pixels);
    return pixels;
  };
  EXPECT_EQ(pixels_of(more / "cmyk-plain.jpg"), pixels_of(kGoldenImages / "cmyk.jpg"));
  const Bytes window = pixels_of(more / "window.png");
  EXPECT_GT(*std::max_element(window.begin(), window.end()), 100);
  EXPECT_EQ(verdict(content_of(more / "window.png")), "readable");
}

TEST(ImageDecoder, WebpFilesAreReadOrRefused) {
  ImageDecoder decoder;
  const Shape shape{3, 16, 16};
  Bytes pixels(shape.size());
  const auto reason = [&](const Bytes& file) {
    try {
      decoder.load(file);
      decoder.decode(always({0, 0, 50, 50}), shape, pixels);
    } catch (const BadImage& bad) {
      return std::string(bad.what());
    }
    return std::string();
  };
  const Bytes whole = content_of(kGoldenImages / "lossy.webp");
  if (!webp_is_supported()) {
    EXPECT_THAT(reason(whole), HasSubstr("without libwebp"));
    return;
  }
  EXPECT_EQ(reason(whole), "");
  EXPECT_THAT(reason(Bytes(whole.begin(), whole.begin() + 16)), HasSubstr("truncated"));
  EXPECT_THAT(reason(Bytes(whole.begin(), whole.end() - static_cast<std::ptrdiff_t>(whole.size() / 2))),
              HasSubstr("truncated"));
  Bytes broken = whole;
  broken[13] = '?';
  EXPECT_THAT(reason(broken), HasSubstr("damaged"));
}

TEST(ImageDecoder, AMirroredRegionIsTheRegionMirrored) {
  for (const char* name : {"photo.jpg", "rgb.png"}) {
    const Shape shape{3, 40, 33};
    Bytes plain(shape.size());
    Bytes mirrored(shape.size());
    ImageDecoder decoder;
    decoder.load(kGoldenImages / name);
    decoder.decode(always({9.5, 3, 71, 60}), shape, plain);
    decoder.decode(always({9.5, 3, 71, 60, true}), shape, mirrored);
    for (std::size_t row = 0; row < 120; ++row) {
      for (std::size_t x = 0; x < 33; ++x) ASSERT_EQ(plain[row * 33 + x], mirrored[row * 33 + 32 - x]);
    }
  }
}

// A decoder that has read other files, some with errors, decodes like a new one.
TEST(ImageDecoder, KeepsNothingOfTheFilesBefore) {
  ImageDecoder used;
  const Shape shape{3, 31, 31};
  const Region region{5, 6, 70, 70};
  for (const GoldenCase& c : golden_cases()) {
    Bytes broken = content_of(kGoldenImages / c.file);
    for (std::size_t i = broken.size() / 3; i < broken.size() - 20; i += 7) broken[i] ^= 0x55;
    Bytes ignored(shape.size());
    try {
      used.load(broken);
      used.decode(always(region), shape, ignored);
    } catch (const BadImage&) {  // not all of them fail
    }
    Bytes by_used(shape.size());
    Bytes by_new(shape.size());
    used.load(kGoldenImages / c.file);
    used.decode(always(region), shape, by_used);
    ImageDecoder fresh;
    fresh.load(kGoldenImages / c.file);
    fresh.decode(always(region), shape, by_new);
    ASSERT_EQ(by_used, by_new) << c.file;
  }
}

std::string reason_of(const Bytes& file) {
  ImageDecoder decoder;
  Bytes pixels(std::size_t{3} * 16 * 16);
  try {
    decoder.load(file);
    decoder.decode([](const ImageSize& size) { return centre_region(size, 1); }, {3, 16, 16}, pixels);
  } catch (const BadImage& bad) {
    return bad.what();
  }
  return "";
}

TEST(ImageDecoder, SaysWhyAnImageIsNone) {
  EXPECT_EQ(reason_of({}), "is empty");
  EXPECT_THAT(reason_of(random_bytes(500, 3)), HasSubstr("is not a JPEG, PNG,"));
  EXPECT_THAT(reason_of({0xFF, 0xD8, 0xFF}), HasSubstr("JPEG"));
  EXPECT_THAT(reason_of({0x89, 'P', 'N', 'G', 0x0D, 0x0A, 0x1A, 0x0A}), HasSubstr("without header"));
  for (const char* name : {"photo.jpg", "progressive.jpg", "grey.jpg", "rgb.png", "interlaced.png", "palette.png"}) {
    const Bytes whole = content_of(kGoldenImages / name);
    EXPECT_EQ(reason_of(whole), "") << name;
    for (const std::size_t left : {whole.size() - 5, whole.size() / 2, whole.size() / 4}) {
      EXPECT_THAT(reason_of({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(left)}),
                  testing::AnyOf(HasSubstr("truncated"), HasSubstr("damaged")))
          << name << " " << left;
    }
  }
  EXPECT_THAT([] { ImageDecoder().load(std::filesystem::path("/nowhere/x.jpg")); },
              testing::ThrowsMessage<BadImage>(HasSubstr("No such file")));
  EXPECT_THAT([] { ImageDecoder().load(std::filesystem::path("/tmp")); },
              testing::ThrowsMessage<BadImage>(HasSubstr("not a regular file")));
}

// Rejected by their header: without a large allocation, and quickly.
TEST(ImageDecoder, EnormousImagesAreRefusedByTheirHeader) {
  Bytes png = content_of(kGoldenImages / "rgb.png");
  for (const std::size_t at : {16U, 20U}) {
    png[at + 1] = 0xFF;  // more than 16 million pixels per side
  }
  EXPECT_THAT(reason_of(png), HasSubstr("pixels large, more than the maximum of 268435456"));
  Bytes interlaced = content_of(kGoldenImages / "interlaced.png");
  interlaced[18] = interlaced[22] = 0x30;
  EXPECT_THAT(reason_of(interlaced), HasSubstr("more than the maximum of 67108864"));
  Bytes jpeg = content_of(kGoldenImages / "photo.jpg");
  const Bytes frame = {0xFF, 0xC0};
  const auto header = std::search(jpeg.begin(), jpeg.end(), frame.begin(), frame.end());
  ASSERT_NE(header, jpeg.end());
  std::fill(header + 5, header + 9, std::uint8_t{0xFE});
  EXPECT_THAT(reason_of(jpeg), HasSubstr("is 65278x65278 pixels large"));
  // Progressive images are decoded as a whole, so 12336 pixels per side are too many.
  Bytes progressive = content_of(kGoldenImages / "progressive.jpg");
  const Bytes progressive_frame = {0xFF, 0xC2};
  const auto at =
      std::search(progressive.begin(), progressive.end(), progressive_frame.begin(), progressive_frame.end());
  ASSERT_NE(at, progressive.end());
  std::fill(at + 5, at + 9, std::uint8_t{0x30});
  EXPECT_THAT(reason_of(progressive), HasSubstr("is 12336x12336 pixels large, more than the maximum of 67108864"));
}

TEST(ImageDecoder, RefusesAJpegOfEndlessScans) {
  Bytes jpeg = content_of(kGoldenImages / "progressive.jpg");
  const Bytes scan_marker = {0xFF, 0xDA};
  const auto last = std::find_end(jpeg.begin(), jpeg.end(), scan_marker.begin(), scan_marker.end());
  ASSERT_NE(last, jpeg.end());
  const Bytes scan(last, jpeg.end() - 2);
  const auto with = [&](int copies) {
    Bytes more = jpeg;
    for (int i = 0; i < copies; ++i) more.insert(more.end() - 2, scan.begin(), scan.end());
    return more;
  };
  EXPECT_EQ(reason_of(with(20)), "");
  EXPECT_THAT(reason_of(with(101)), HasSubstr("more than 100 scans"));
}

// Changes single bytes anywhere: the result must be an image or an error.
TEST(ImageDecoder, SurvivesDamageOfAllKinds) {
  for (const char* name : {"photo.jpg", "progressive.jpg", "cmyk.jpg", "rgb.png", "interlaced.png"}) {
    const Bytes whole = content_of(kGoldenImages / name);
    const Bytes noise = random_bytes(2000, whole.size());
    for (std::size_t i = 0; i < 300; ++i) {
      Bytes broken = whole;
      const std::size_t place = (noise[4 * i] * 256U + noise[4 * i + 1]) % broken.size();
      broken[place] = noise[4 * i + 2];
      (void)reason_of(broken);
    }
  }
}

}  // namespace
}  // namespace ddp
