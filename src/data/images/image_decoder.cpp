#include "data/images/image_decoder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/file.h"
#include "base/status/heartbeat.h"

namespace ddp {

void ImageDecoder::load(const std::filesystem::path& path, bool upright) {
  upright_ = upright;
  const FileActivity activity("reading " + path.string());
  // Without O_NONBLOCK the open itself waits for the other end of a named pipe.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.get() < 0) throw BadImage(fmt::format("cannot be opened: {}", errno_text(errno)));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw BadImage(fmt::format("cannot be read: {}", errno_text(errno)));
  if (!S_ISREG(status.st_mode)) throw BadImage("is not a regular file");
  if (status.st_size == 0) throw BadImage("is empty");
  if (status.st_size > kMaxImageFileBytes)
    throw BadImage(fmt::format("has {} bytes, more than any image", status.st_size));
  const auto size = static_cast<std::size_t>(status.st_size);
  if (file_.size() < size) file_.resize(size);
  bytes_ = 0;
  while (bytes_ < size) {
    const ::ssize_t found = ::read(file.get(), file_.data() + bytes_, size - bytes_);
    if (found < 0 && errno == EINTR) continue;
    if (found < 0) throw BadImage(fmt::format("cannot be read: {}", errno_text(errno)));
    if (found == 0) break;
    bytes_ += static_cast<std::size_t>(found);
  }
}

void ImageDecoder::load(std::span<const std::uint8_t> bytes, bool upright) {
  if (bytes.empty()) throw BadImage("is empty");
  std::copy(bytes.begin(), bytes.end(), load_room(bytes.size(), upright).begin());
}

std::span<std::uint8_t> ImageDecoder::load_room(std::size_t bytes, bool upright) {
  upright_ = upright;
  if (file_.size() < bytes) file_.resize(bytes);
  bytes_ = bytes;
  return std::span(file_).first(bytes);
}

const Raster& ImageDecoder::decode(const RasterRequest& request) {
  RasterRequest turned = request;
  turned.upright = upright_;
  decode_picture(std::span(file_).first(bytes_), turned, raster_);
  return raster_;
}

void ImageDecoder::decode(const RegionChooser& choose, const Shape& shape, std::span<std::uint8_t> pixels, bool verify,
                          Interpolation filter) {
  decode({.choose = choose, .pixels = {shape.width, shape.height}, .verify = verify});
  resizer_.run(raster_.view(), raster_.region, {filter, false}, shape, pixels);
}

void ImageDecoder::decode_exact(const RegionChooser& choose, const Shape& shape, std::span<std::uint8_t> pixels,
                                Interpolation filter) {
  decode({.choose = choose, .pixels = {shape.width, shape.height}, .whole = true, .verify = true});
  resizer_.run(raster_.view(), raster_.region, {filter, true}, shape, pixels);
}

void ImageDecoder::decode_shown(const Preprocessing& preprocessing, bool exactly, std::span<std::uint8_t> pixels,
                                bool verify) {
  const Shape coloured = {3, preprocessing.shape.height, preprocessing.shape.width};
  ImageSize size;
  const RegionChooser choose = [&](const ImageSize& picture) {
    size = picture;
    return preprocessing.region(picture);
  };
  decode(
      {.choose = choose, .pixels = {coloured.width, coloured.height}, .whole = exactly, .verify = exactly || verify});
  resizer_.run_placed(raster_.view(), raster_.region, {preprocessing.filter, exactly}, preprocessing.placement(size),
                      coloured, pixels);
}

ImageDecoder& thread_decoder() {
  thread_local ImageDecoder decoder;
  return decoder;
}

}  // namespace ddp
