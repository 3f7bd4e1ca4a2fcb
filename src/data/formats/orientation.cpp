#include "data/formats/orientation.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace ddp {
namespace {

using FileBytes = std::span<const std::uint8_t>;

bool has_text(FileBytes bytes, std::size_t at, std::string_view text) {
  return at <= bytes.size() && bytes.size() - at >= text.size() &&
         std::equal(text.begin(), text.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
}

// An unsigned number of `count` bytes; 0 beyond the end.
std::uint32_t number(FileBytes bytes, std::size_t at, std::size_t count, bool big_end_first) {
  if (at > bytes.size() || bytes.size() - at < count) return 0;
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value = (value << 8U) | bytes[big_end_first ? at + i : at + count - 1 - i];
  return value;
}

// The value of an entry of the first directory, which has the layout of a TIFF file.
unsigned value_in_exif(FileBytes exif) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  constexpr std::uint32_t kOrientationTag = 0x0112;
  constexpr std::uint32_t kShort = 3;
  constexpr std::uint32_t kLong = 4;
  if (has_text(exif, 0, kPrefix)) exif = exif.subspan(kPrefix.size());
  const bool big = has_text(exif, 0, "MM");
  if (!big && !has_text(exif, 0, "II")) return 1;
  const std::size_t directory = number(exif, 4, 4, big);
  const std::uint32_t entries = number(exif, directory, 2, big);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + std::size_t{12} * i;
    if (entry + 12 > exif.size()) return 1;
    if (number(exif, entry, 2, big) != kOrientationTag) continue;
    const std::uint32_t type = number(exif, entry + 2, 2, big);
    if (number(exif, entry + 4, 4, big) != 1) return 1;
    return type == kShort ? number(exif, entry + 8, 2, big) : type == kLong ? number(exif, entry + 8, 4, big) : 1;
  }
  return 1;
}

// The content of the first APP1 segment with EXIF data, or nothing.
FileBytes exif_of_jpeg(FileBytes file) {
  constexpr std::uint32_t kApp1 = 0xE1;
  constexpr std::uint32_t kStartOfScan = 0xDA;
  constexpr std::uint32_t kEndOfImage = 0xD9;
  std::size_t at = 2;
  while (at + 4 <= file.size() && file[at] == 0xFF) {
    const std::uint32_t marker = file[at + 1];
    if (marker == 0xFF) {  // padding
      ++at;
      continue;
    }
    if (marker == kStartOfScan || marker == kEndOfImage) break;
    const std::size_t length = number(file, at + 2, 2, true);
    if (length < 2 || at + 2 + length > file.size()) break;
    if (marker == kApp1 && has_text(file, at + 4, std::string_view("Exif\0", 5))) {
      return file.subspan(at + 4, length - 2);
    }
    at += 2 + length;
  }
  return {};
}

FileBytes exif_of_png(FileBytes file) {
  std::size_t at = 8;
  while (at + 12 <= file.size()) {
    const std::size_t length = number(file, at, 4, true);
    if (length > file.size() - at - 12) break;
    if (has_text(file, at + 4, "eXIf")) return file.subspan(at + 8, length);
    if (has_text(file, at + 4, "IEND")) break;
    at += 12 + length;
  }
  return {};
}

FileBytes exif_of_webp(FileBytes file) {
  std::size_t at = 12;
  // Only the extended form has it.
  if (!has_text(file, at, "VP8X")) return {};
  while (at + 8 <= file.size()) {
    const std::size_t length = number(file, at + 4, 4, false);
    if (length > file.size() - at - 8) break;
    if (has_text(file, at, "EXIF")) return file.subspan(at + 8, length);
    at += 8 + length + length % 2;
  }
  return {};
}

}  // namespace

Orientation orientation_of_value(unsigned value) {
  constexpr std::array<Orientation, 8> kOrientations = {{{},
                                                         {.flips_x = true},
                                                         {.flips_x = true, .flips_y = true},
                                                         {.flips_y = true},
                                                         {.swaps = true},
                                                         {.flips_y = true, .swaps = true},
                                                         {.flips_x = true, .flips_y = true, .swaps = true},
                                                         {.flips_x = true, .swaps = true}}};
  return value >= 1 && value <= kOrientations.size() ? kOrientations[value - 1] : Orientation{};
}

Orientation orientation_of(FileBytes file) {
  if (has_text(file, 0, "\xFF\xD8")) return orientation_of_value(value_in_exif(exif_of_jpeg(file)));
  if (has_text(file, 0, "\x89PNG")) return orientation_of_value(value_in_exif(exif_of_png(file)));
  if (has_text(file, 0, "RIFF") && has_text(file, 8, "WEBP")) {
    return orientation_of_value(value_in_exif(exif_of_webp(file)));
  }
  return {};
}

ImageSize turned_size(const ImageSize& stored, const Orientation& orientation) {
  return orientation.swaps ? ImageSize{stored.height, stored.width} : stored;
}

Region stored_region(Region region, const ImageSize& stored, const Orientation& orientation) {
  if (orientation.swaps) {
    std::swap(region.x, region.y);
    std::swap(region.width, region.height);
  }
  if (orientation.flips_x) region.x = static_cast<double>(stored.width) - (region.x + region.width);
  if (orientation.flips_y) region.y = static_cast<double>(stored.height) - (region.y + region.height);
  return region;
}

void turn(Raster& raster, const Orientation& orientation, std::vector<std::uint8_t>& scratch) {
  const ImageSize stored{raster.width, raster.height};
  const ImageSize turned = turned_size(stored, orientation);
  const auto bytes = static_cast<std::size_t>(stored.width * stored.height * 3);
  if (scratch.size() < bytes) scratch.resize(bytes);
  for (std::int64_t y = 0; y < turned.height; ++y) {
    std::uint8_t* to = scratch.data() + y * turned.width * 3;
    for (std::int64_t x = 0; x < turned.width; ++x, to += 3) {
      std::int64_t from_x = orientation.swaps ? y : x;
      std::int64_t from_y = orientation.swaps ? x : y;
      if (orientation.flips_x) from_x = stored.width - 1 - from_x;
      if (orientation.flips_y) from_y = stored.height - 1 - from_y;
      std::copy_n(raster.pixels.data() + (from_y * stored.width + from_x) * 3, 3, to);
    }
  }
  std::swap(raster.pixels, scratch);
  Region& region = raster.region;
  if (orientation.flips_x) region.x = static_cast<double>(stored.width) - (region.x + region.width);
  if (orientation.flips_y) region.y = static_cast<double>(stored.height) - (region.y + region.height);
  if (orientation.swaps) {
    std::swap(region.x, region.y);
    std::swap(region.width, region.height);
  }
  raster.width = turned.width;
  raster.height = turned.height;
}

}  // namespace ddp
