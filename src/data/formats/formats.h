// The formats of pictures, a file each: from the bytes of a file to RGB pixels.
//
//   Raster raster;
//   decode_picture(bytes, {.choose = chooser, .pixels = {224, 224}}, raster);   // throws BadImage: "is truncated"
//
// The format is detected from the first bytes. JPEG, PNG and WebP decode little more than the region: a JPEG is scaled down in
// the inverse DCT by the largest of 2, 4 and 8 that leaves at least the required pixels, and rows and blocks outside the region
// are skipped; a PNG is averaged over squares of the same sizes while it is read; a WebP is cropped. BMP, GIF, TIFF, HEIC and AVIF
// are decoded whole. Grey, palette and CMYK pictures are converted to RGB; transparency is ignored; of an animation the first
// frame is read. Libraries that a build lacks are named by missing_library().
//
// Whether a damaged file is rejected does not depend on the region if `verify` is set, which a caller does when it reads a
// file for the first time. It costs the rows of a PNG below the region, and decoding a WebP a second time. Damage in the
// pixels of a JPEG is left to libjpeg, as in Pillow, and rejects no file.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/raster.h"
#include "data/formats/region.h"

namespace ddp {

// Why an image cannot be used: "is truncated". The caller adds the name of the file.
class BadImage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Images with more pixels are rejected based on their header, before any allocation.
constexpr std::int64_t kMaxImagePixels = std::int64_t{1} << 28;
// The same for files that must be held in memory completely: interlaced PNG, progressive JPEG, and formats that are decoded whole.
constexpr std::int64_t kMaxWholePixels = std::int64_t{1} << 26;

// The requested part of an image: the region, in at least `pixels` pixels if it has that many.
struct RasterRequest {
  const RegionChooser& choose;
  ImageSize pixels;
  bool whole = false;   // all pixels, as Pillow decodes them: none is scaled down or left out
  bool verify = false;  // find damage in what the region does not need, too
  bool upright = true;  // turned as the EXIF orientation says; `choose` gets the size after that
};

// Throws BadImage, also for content that is not a picture, which it names.
void decode_picture(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster);

// The suffixes of the names of pictures, in lower case: ".jpg". The first ones were read by earlier versions, too.
std::span<const std::string_view> picture_suffixes();
inline constexpr std::size_t kFirstSuffixes = 6;

// The usual suffix of the format that the first bytes show, without a dot: "jpg"; "" for what is no picture.
std::string_view content_suffix(std::span<const std::uint8_t> file);

// What this build lacks for files with this suffix.
struct MissingLibrary {
  std::string_view library;  // "libtiff"; empty: nothing
  std::string_view option;   // of launch/setup: " --heif"
  std::string_view format;   // "TIFF"
};
MissingLibrary missing_library(std::string_view suffix);

// Each throws BadImage, and ignores EXIF.
void decode_jpeg(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster);
void decode_png(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster);
void decode_webp(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster);
void decode_bmp(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster);
void decode_gif(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster);
void decode_tiff(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster);
void decode_avif(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster);
void decode_heif(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster);
// Whether this build has the library; without it the function above throws.
bool webp_is_supported();
bool gif_is_supported();
bool tiff_is_supported();
bool avif_is_supported();
bool heif_is_supported();

// The largest of 1, 2, 4 and 8 by which a region can be scaled down and still have at least `pixels` pixels.
std::int64_t reduction_of(const Region& region, const ImageSize& pixels);

// The pixels that a region touches along one axis of `size`: the half-open range.
struct PixelSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
PixelSpan touched_pixels(double begin, double length, std::int64_t size);

// Throws BadImage if a picture of this size has no pixels or more than `most`.
void check_size(const ImageSize& size, std::int64_t most);
// For formats that are decoded whole: checks the size, chooses the region, and makes room for all pixels.
void begin_whole(const ImageSize& size, const RasterRequest& request, Raster& raster);

}  // namespace ddp
