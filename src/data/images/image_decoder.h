// Decodes a region of a picture of any format straight to a data set's shape.
//
//   ImageDecoder decoder;   // one per thread; reuses its buffers
//   decoder.load(path);
//   decoder.decode(chooser, {3, 224, 224}, pixels);         // throws BadImage: "is truncated"
//   decoder.decode_exact(chooser, {3, 224, 224}, pixels);   // the bytes of Pillow's resize()
//
// decode() decodes only what the region needs, in formats where that is possible (data/formats/formats.h). With the EXIF
// orientation, which load() may leave out, the picture is turned first: the chooser gets its size upright.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/types/shape.h"
#include "data/formats/formats.h"
#include "data/images/preprocessing.h"
#include "data/images/resizer.h"

namespace ddp {

constexpr std::int64_t kMaxImageFileBytes = std::int64_t{1} << 30;

class ImageDecoder {
 public:
  // Reads a complete file. `upright`: with its EXIF orientation.
  void load(const std::filesystem::path& path, bool upright = true);
  // Takes the bytes from the caller.
  void load(std::span<const std::uint8_t> bytes, bool upright = true);

  // Room for a file of `bytes` bytes, which the caller fills with all of them.
  std::span<std::uint8_t> load_room(std::size_t bytes, bool upright = true);
  // What was loaded.
  std::span<const std::uint8_t> file() const { return std::span(file_).first(bytes_); }

  // `shape` has three channels.
  void decode(const RegionChooser& choose, const Shape& shape, std::span<std::uint8_t> pixels, bool verify = false,
              Interpolation filter = Interpolation::bilinear);
  // The same from the whole image, by Pillow's arithmetic.
  void decode_exact(const RegionChooser& choose, const Shape& shape, std::span<std::uint8_t> pixels,
                    Interpolation filter = Interpolation::bilinear);
  // What is shown without augmentation, in RGB, by either way.
  void decode_shown(const Preprocessing& preprocessing, bool exactly, std::span<std::uint8_t> pixels,
                    bool verify = false);
  // The pixels as decoded, at least `request.pixels` for the region; upright as load() says.
  const Raster& decode(const RasterRequest& request);

 private:
  std::vector<std::uint8_t> file_;
  std::size_t bytes_ = 0;  // of file_
  bool upright_ = true;
  Raster raster_;
  PictureResizer resizer_;
};

// The decoder of this thread.
ImageDecoder& thread_decoder();

}  // namespace ddp
