#include "data/formats/formats.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "data/formats/orientation.h"

namespace ddp {
namespace {

using namespace std::string_view_literals;

using Decode = void (*)(std::span<const std::uint8_t>, const RasterRequest&, Raster&);

bool bytes_are(std::span<const std::uint8_t> file, std::size_t at, std::string_view text) {
  return file.size() >= at + text.size() &&
         std::equal(text.begin(), text.end(), file.begin() + static_cast<std::ptrdiff_t>(at),
                    [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
}

// Whether this is a file of the ISO base media format with one of these brands. Videos have others.
bool has_brand(std::span<const std::uint8_t> file, std::span<const std::string_view> brands) {
  return bytes_are(file, 4, "ftyp") &&
         std::any_of(brands.begin(), brands.end(), [&](std::string_view brand) { return bytes_are(file, 8, brand); });
}

constexpr std::array kAvifBrands = {"avif"sv, "avis"sv};
constexpr std::array kHeifBrands = {"heic"sv, "heix"sv, "heim"sv, "heis"sv, "hevc"sv, "mif1"sv, "mif2"sv, "msf1"sv};

bool is_tiff(std::span<const std::uint8_t> file) {
  return bytes_are(file, 0, "II*\0"sv) || bytes_are(file, 0, "MM\0*"sv) || bytes_are(file, 0, "II+\0"sv) ||
         bytes_are(file, 0, "MM\0+"sv);
}

struct Format {
  Decode decode = nullptr;  // null: no picture
  std::string_view suffix = {};
};

Format format_of(std::span<const std::uint8_t> file) {
  if (bytes_are(file, 0, "\xFF\xD8\xFF")) return {decode_jpeg, "jpg"};
  if (bytes_are(file, 0, "\x89PNG\r\n\x1A\n")) return {decode_png, "png"};
  if (bytes_are(file, 0, "RIFF") && bytes_are(file, 8, "WEBP")) return {decode_webp, "webp"};
  if (bytes_are(file, 0, "GIF87a") || bytes_are(file, 0, "GIF89a")) return {decode_gif, "gif"};
  if (bytes_are(file, 0, "BM")) return {decode_bmp, "bmp"};
  if (is_tiff(file)) return {decode_tiff, "tif"};
  if (has_brand(file, kAvifBrands)) return {decode_avif, "avif"};
  return has_brand(file, kHeifBrands) ? Format{decode_heif, "heic"} : Format{};
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// What is often found under the name of a picture.
std::string kind_of_other(std::span<const std::uint8_t> file) {
  struct Kind {
    std::size_t at;
    std::string_view magic;
    const char* name;
  };
  constexpr std::array kKinds = {
      Kind{0, "\0\5\x16\7"sv, "is metadata of macOS (AppleDouble), not an image; remove it"},
      Kind{0, "version https://git-lfs"sv, "is a Git LFS pointer, not an image; fetch the file with git lfs pull"},
      Kind{0, "%PDF"sv, "is a PDF file, not an image"},
      Kind{0, "PK\3\4"sv, "is a ZIP archive, not an image"},
      Kind{0, "\x1F\x8B"sv, "is a gzip file, not an image"},
      Kind{0, "8BPS"sv, "is a Photoshop file, which is not read; convert it to PNG"},
      Kind{0, "\0\0\0\x0CjP  "sv, "is a JPEG 2000 file, which is not read; convert it to PNG"},
      Kind{0, "\xFF\x4F\xFF\x51"sv, "is a JPEG 2000 file, which is not read; convert it to PNG"},
      Kind{0, "\xFF\x0A"sv, "is a JPEG XL file, which is not read; convert it to PNG"},
      Kind{0, "\0\0\0\x0CJXL "sv, "is a JPEG XL file, which is not read; convert it to PNG"},
      Kind{0, "\0\0\1\0"sv, "is an icon (ICO), which is not read; convert it to PNG"},
      Kind{0, "\xD0\xCF\x11\xE0"sv, "is a thumbnail database or document of Windows, not an image; remove it"},
      Kind{4, "ftyp"sv, "is a video, not an image"},
  };
  for (const Kind& kind : kKinds) {
    if (bytes_are(file, kind.at, kind.magic)) return kind.name;
  }
  if (file.empty()) return "is empty";
  constexpr std::size_t kLooked = 1024;
  std::string begin;
  for (const std::uint8_t byte : file.first(std::min(file.size(), kLooked))) {
    begin += byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + ('a' - 'A')) : static_cast<char>(byte);
  }
  if (begin.find_first_not_of('\0') == std::string::npos) return "has only zero bytes, and is no image";
  const std::size_t text = begin.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (text != std::string::npos && begin[text] == '<') {
    if (contains(begin, "<html") || contains(begin, "<!doctype html")) return "is a web page (HTML), not an image";
    if (contains(begin, "<svg")) return "is an SVG drawing, which is not read; convert it to PNG";
    return "is an XML file, not an image";
  }
  const bool is_text = std::all_of(begin.begin(), begin.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\r' || c == '\t';
  });
  if (is_text) return "is a text file, not an image";
  return "is not a JPEG, PNG, WebP, GIF, BMP, TIFF, HEIC or AVIF file, despite its name";
}

}  // namespace

std::span<const std::string_view> picture_suffixes() {
  static constexpr std::array kSuffixes = {".jpg"sv, ".jpeg"sv, ".jpe"sv,  ".jfif"sv, ".png"sv,  ".webp"sv, ".bmp"sv,
                                           ".gif"sv, ".tif"sv,  ".tiff"sv, ".heic"sv, ".heif"sv, ".avif"sv};
  return kSuffixes;
}

std::string_view content_suffix(std::span<const std::uint8_t> file) { return format_of(file).suffix; }

MissingLibrary missing_library(std::string_view suffix) {
  if (suffix == ".webp" && !webp_is_supported()) return {"libwebp", "", "WebP"};
  if (suffix == ".gif" && !gif_is_supported()) return {"giflib", "", "GIF"};
  if ((suffix == ".tif" || suffix == ".tiff") && !tiff_is_supported()) return {"libtiff", "", "TIFF"};
  if (suffix == ".avif" && !avif_is_supported()) return {"libavif", " --heif", "AVIF"};
  if ((suffix == ".heic" || suffix == ".heif") && !heif_is_supported()) return {"libheif", " --heif", "HEIC"};
  return {};
}

std::int64_t reduction_of(const Region& region, const ImageSize& pixels) {
  for (const std::int64_t reduction : {8, 4, 2}) {
    const auto divisor = static_cast<double>(reduction);
    if (region.width >= divisor * static_cast<double>(pixels.width) &&
        region.height >= divisor * static_cast<double>(pixels.height)) {
      return reduction;
    }
  }
  return 1;
}

PixelSpan touched_pixels(double begin, double length, std::int64_t size) {
  return {std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(begin)), 0, size - 1),
          std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(begin + length)), 1, size)};
}

void check_size(const ImageSize& size, std::int64_t most) {
  if (size.width <= 0 || size.height <= 0) throw BadImage("has no pixels");
  if (size.height > most / size.width) {
    throw BadImage(fmt::format("is {}x{} pixels large, more than the maximum of {}", size.width, size.height, most));
  }
}

void begin_whole(const ImageSize& size, const RasterRequest& request, Raster& raster) {
  check_size(size, kMaxWholePixels);
  raster.region = request.choose(size);
  raster.width = size.width;
  raster.height = size.height;
  const auto bytes = static_cast<std::size_t>(size.width * size.height * 3);
  if (raster.pixels.size() < bytes) raster.pixels.resize(bytes);
}

void decode_picture(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster) {
  const Decode decode = format_of(file).decode;
  if (decode == nullptr) throw BadImage(kind_of_other(file));
  const Orientation orientation = request.upright ? orientation_of(file) : Orientation{};
  if (!orientation.turns()) return decode(file, request, raster);
  const RegionChooser choose = [&](const ImageSize& stored) {
    return stored_region(request.choose(turned_size(stored, orientation)), stored, orientation);
  };
  RasterRequest stored{.choose = choose,
                       .pixels = turned_size(request.pixels, orientation),
                       .whole = request.whole,
                       .verify = request.verify};
  decode(file, stored, raster);
  thread_local std::vector<std::uint8_t> scratch;
  turn(raster, orientation, scratch);
}

}  // namespace ddp
