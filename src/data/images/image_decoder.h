// Decodes a region of a JPEG, PNG or WebP file straight to a data set's shape.
//
//   ImageDecoder decoder;   // one per thread; reuses its buffers
//   decoder.load(path);
//   decoder.decode(chooser, {3, 224, 224}, pixels);         // throws BadImage: "is truncated"
//   decoder.decode_exact(chooser, {3, 224, 224}, pixels);   // the bytes of Pillow's resize()
//
// The format is detected from the first bytes. decode() decodes only the region: a JPEG is scaled down in the inverse DCT by
// the largest of 2, 4 and 8 that leaves at least the required pixels, and rows and blocks outside the region are
// skipped; a PNG is averaged over squares of the same sizes while it is read; a WebP is cropped. Greyscale, palette and CMYK images are
// converted to RGB; transparency and the EXIF orientation are ignored.
//
// Whether a damaged file is rejected does not depend on the region if `verify` is set, which a caller does when it reads a
// file for the first time. It costs the rows of a PNG below the region, and decoding a WebP a second time. Damage in the
// pixels of a JPEG is left to libjpeg, as in Pillow, and rejects no file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/types/shape.h"
#include "data/images/region.h"
#include "data/images/resample.h"
#include "data/images/resample_exact.h"

namespace ddp {

// Why an image cannot be used: "is truncated". The caller adds the name of the file.
class BadImage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Images with more pixels are rejected based on their header, before any allocation.
constexpr std::int64_t kMaxImagePixels = std::int64_t{1} << 28;
// The same for interlaced PNG and progressive JPEG files, which must be held in memory completely.
constexpr std::int64_t kMaxWholePixels = std::int64_t{1} << 26;
constexpr std::int64_t kMaxImageFileBytes = std::int64_t{1} << 30;

// RGB pixels of a part of an image, which may have been scaled down.
struct Raster {
  std::vector<std::uint8_t> pixels;  // [height][width][3]; may be larger
  std::int64_t width = 0;
  std::int64_t height = 0;
  Region region;  // the requested region, in this raster's pixels

  RasterView view() const { return {pixels.data(), width, height, 3}; }
};

// The requested part of an image: the region, in at least `pixels` pixels if it has that many.
struct RasterRequest {
  const RegionChooser& choose;
  ImageSize pixels;
  bool whole = false;   // all pixels, as Pillow decodes them: none is scaled down or left out
  bool verify = false;  // find damage in what the region does not need, too
};

// Each throws BadImage.
void decode_jpeg(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster);
void decode_png(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster);
void decode_webp(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster);
// Whether this build has libwebp; without it decode_webp() throws.
bool webp_is_supported();

// The largest of 1, 2, 4 and 8 by which a region can be scaled down and still have at least `pixels` pixels.
std::int64_t reduction_of(const Region& region, const ImageSize& pixels);

// The pixels that a region touches along one axis of `size`: the half-open range.
struct PixelSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
PixelSpan touched_pixels(double begin, double length, std::int64_t size);

class ImageDecoder {
 public:
  // Reads a complete file.
  void load(const std::filesystem::path& path);
  // Takes the bytes from the caller.
  void load(std::span<const std::uint8_t> bytes);

  // `shape` has three channels.
  void decode(const RegionChooser& choose, const Shape& shape, std::span<std::uint8_t> pixels, bool verify = false);
  // The same from the whole image, by Pillow's arithmetic; the region is not mirrored.
  void decode_exact(const RegionChooser& choose, const Shape& shape, std::span<std::uint8_t> pixels);
  // The pixels as decoded, at least `request.pixels` for the region.
  const Raster& decode(const RasterRequest& request);

 private:
  std::vector<std::uint8_t> file_;
  std::size_t bytes_ = 0;  // of file_
  Raster raster_;
  Resampler resampler_;
  ExactResampler exact_;
};

// The decoder of this thread.
ImageDecoder& thread_decoder();

}  // namespace ddp
