#include "data/images/image_decoder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/status/heartbeat.h"

namespace ddp {
namespace {

constexpr std::array<std::uint8_t, 3> kJpegMagic = {0xFF, 0xD8, 0xFF};
constexpr std::array<std::uint8_t, 8> kPngMagic = {0x89, 'P', 'N', 'G', 0x0D, 0x0A, 0x1A, 0x0A};

// A RIFF container of this form: "RIFF", the size in four bytes, "WEBP".
constexpr std::array<std::uint8_t, 4> kRiffMagic = {'R', 'I', 'F', 'F'};
constexpr std::array<std::uint8_t, 4> kWebpMagic = {'W', 'E', 'B', 'P'};

bool starts_with(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

}  // namespace

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

void ImageDecoder::load(const std::filesystem::path& path) {
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

void ImageDecoder::load(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) throw BadImage("is empty");
  if (file_.size() < bytes.size()) file_.resize(bytes.size());
  std::copy(bytes.begin(), bytes.end(), file_.begin());
  bytes_ = bytes.size();
}

const Raster& ImageDecoder::decode(const RasterRequest& request) {
  const std::span<const std::uint8_t> bytes = std::span(file_).first(bytes_);
  if (starts_with(bytes, kJpegMagic)) {
    decode_jpeg(bytes, request, raster_);
  } else if (starts_with(bytes, kPngMagic)) {
    decode_png(bytes, request, raster_);
  } else if (starts_with(bytes, kRiffMagic) && bytes.size() >= 12 && starts_with(bytes.subspan(8), kWebpMagic)) {
    decode_webp(bytes, request, raster_);
  } else {
    throw BadImage("is neither a JPEG nor a PNG nor a WebP file, despite its name");
  }
  return raster_;
}

void ImageDecoder::decode(const RegionChooser& choose, const Shape& shape, std::span<std::uint8_t> pixels,
                          bool verify) {
  decode({.choose = choose, .pixels = {shape.width, shape.height}, .verify = verify});
  resampler_.run(raster_.view(), raster_.region, shape, pixels);
}

void ImageDecoder::decode_exact(const RegionChooser& choose, const Shape& shape, std::span<std::uint8_t> pixels) {
  decode({.choose = choose, .pixels = {shape.width, shape.height}, .whole = true, .verify = true});
  exact_.run(raster_.view(), raster_.region, shape, pixels);
}

ImageDecoder& thread_decoder() {
  thread_local ImageDecoder decoder;
  return decoder;
}

}  // namespace ddp
