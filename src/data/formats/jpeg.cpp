// JPEG by libjpeg-turbo.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "data/formats/formats.h"

// Requires <cstdio>.
#include <jpeglib.h>

namespace ddp {
namespace {

// libjpeg's errors leave by longjmp, not by exceptions, because its frames are C code.
struct ErrorManager {
  jpeg_error_mgr base;  // must be first: libjpeg passes a pointer to it
  std::jmp_buf leave;
  std::array<char, JMSG_LENGTH_MAX> message;
};

ErrorManager& manager_of(j_common_ptr info) { return *reinterpret_cast<ErrorManager*>(info->err); }

[[noreturn]] void leave(j_common_ptr info) {
  ErrorManager& manager = manager_of(info);
  manager.base.format_message(info, manager.message.data());
  std::longjmp(manager.leave, 1);  // NOLINT(modernize-avoid-setjmp-longjmp,cert-err52-cpp)
}

// Recoverable damage is left to libjpeg, as in Pillow: many images from the web are slightly damaged.
void say_nothing(j_common_ptr /*info*/, int /*level*/) {}

// Each scan of a progressive file covers the whole image; real files have about ten. A small malicious file with
// thousands of scans would take minutes.
constexpr int kMostScans = 100;

void check_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  ErrorManager& manager = manager_of(info);
  // A std::string would leak on longjmp.
  constexpr std::string_view kReason = "it has more than 100 scans";
  static_assert(kMostScans == 100 && kReason.size() < JMSG_LENGTH_MAX);
  *std::copy(kReason.begin(), kReason.end(), manager.message.begin()) = '\0';
  std::longjmp(manager.leave, 1);  // NOLINT(modernize-avoid-setjmp-longjmp,cert-err52-cpp)
}

// The decompressor of a thread, with its tables.
class Decompressor {
 public:
  Decompressor() {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = leave;
    errors_.base.emit_message = say_nothing;
    jpeg_create_decompress(&info_);
    progress_.progress_monitor = check_scans;
    info_.progress = &progress_;
  }
  ~Decompressor() { jpeg_destroy_decompress(&info_); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  jpeg_decompress_struct& info() { return info_; }

  // Runs `work`, which may call libjpeg and must own nothing that needs a destructor; returns false if libjpeg failed.
  template <class Work>
  bool run(const Work& work) {
    if (setjmp(errors_.leave) != 0) return false;  // NOLINT(modernize-avoid-setjmp-longjmp,cert-err52-cpp)
    work(info_);
    return true;
  }
  BadImage failure() {
    const std::string text = errors_.message.data();
    jpeg_abort_decompress(&info_);
    return BadImage(fmt::format("is a damaged JPEG file: {}", text));
  }

 private:
  jpeg_decompress_struct info_{};
  ErrorManager errors_{};
  jpeg_progress_mgr progress_{};
};

// Aborts the current decompression, so that the decompressor can be reused.
class Session {
 public:
  explicit Session(jpeg_decompress_struct& info) : info_(info) {}
  ~Session() { jpeg_abort_decompress(&info_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  jpeg_decompress_struct& info_;
};

// Whether an end-of-image marker follows the headers; entropy-coded data never contain one.
bool has_end_marker(std::span<const std::uint8_t> rest) {
  constexpr std::array<std::uint8_t, 2> kEnd = {0xFF, 0xD9};
  return std::find_end(rest.begin(), rest.end(), kEnd.begin(), kEnd.end()) != rest.end();
}

// CMYK is stored inverted: 255 is no ink. Only Adobe's marker says so, but there are no files in the other form to speak of;
// Pillow and browsers read all of them like this.
void rgb_of_cmyk(const std::uint8_t* from, std::size_t pixels, std::uint8_t* to) {
  for (std::size_t i = 0; i < pixels; ++i, from += 4, to += 3) {
    for (std::size_t c = 0; c < 3; ++c) to[c] = static_cast<std::uint8_t>((from[c] * from[3] + 127) / 255);
  }
}

// The same with Pillow's rounding, which differs by one level for some colours.
void rgb_of_cmyk_exactly(const std::uint8_t* from, std::size_t pixels, std::uint8_t* to) {
  for (std::size_t i = 0; i < pixels; ++i, from += 4, to += 3) {
    for (std::size_t c = 0; c < 3; ++c) {
      const int product = (255 - from[c]) * from[3] + 128;
      to[c] = static_cast<std::uint8_t>(from[3] - (((product >> 8) + product) >> 8));
    }
  }
}

// Reads rows first .. last-1 of the cropped image into `pixels`.
bool read_rows(Decompressor& decompressor, PixelSpan rows, std::uint8_t* pixels, std::uint8_t* cmyk, bool exactly) {
  return decompressor.run([&](jpeg_decompress_struct& info) {
    if (rows.begin > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(rows.begin));
    const std::size_t stride = std::size_t{info.output_width} * 3;
    while (info.output_scanline < static_cast<JDIMENSION>(rows.end)) {
      std::uint8_t* to = pixels + (info.output_scanline - static_cast<std::size_t>(rows.begin)) * stride;
      JSAMPROW row = cmyk != nullptr ? cmyk : to;
      jpeg_read_scanlines(&info, &row, 1);
      if (cmyk != nullptr) (exactly ? rgb_of_cmyk_exactly : rgb_of_cmyk)(cmyk, info.output_width, to);
    }
  });
}

}  // namespace

void decode_jpeg(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster) {
  thread_local Decompressor decompressor;
  thread_local std::vector<std::uint8_t> cmyk_row;
  jpeg_decompress_struct& info = decompressor.info();
  const Session session(info);
  const auto start = [&](jpeg_decompress_struct& to_start) {
    jpeg_mem_src(&to_start, file.data(), static_cast<unsigned long>(file.size()));
    jpeg_read_header(&to_start, TRUE);
  };
  if (!decompressor.run(start)) throw decompressor.failure();
  const ImageSize size{info.image_width, info.image_height};
  const std::int64_t limit = jpeg_has_multiple_scans(&info) != 0 ? kMaxWholePixels : kMaxImagePixels;
  if (size.width * size.height > limit) {
    throw BadImage(fmt::format("is {}x{} pixels large, more than the maximum of {}", size.width, size.height, limit));
  }
  if (!has_end_marker({info.src->next_input_byte, info.src->bytes_in_buffer}))
    throw BadImage("is a truncated JPEG file");
  const Region region = request.choose(size);
  const std::int64_t reduction = request.whole ? 1 : reduction_of(region, request.pixels);
  const auto divisor = static_cast<double>(reduction);
  const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(reduction);
  info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  if (!decompressor.run([](jpeg_decompress_struct& to_start) { jpeg_start_decompress(&to_start); })) {
    throw decompressor.failure();
  }
  Region scaled{region.x / divisor, region.y / divisor, region.width / divisor, region.height / divisor,
                region.mirrored};
  const PixelSpan rows =
      request.whole ? PixelSpan{0, info.output_height} : touched_pixels(scaled.y, scaled.height, info.output_height);
  const PixelSpan columns =
      request.whole ? PixelSpan{0, info.output_width} : touched_pixels(scaled.x, scaled.width, info.output_width);
  auto left = static_cast<JDIMENSION>(columns.begin);
  auto width = static_cast<JDIMENSION>(columns.end - columns.begin);
  const auto crop = [&](jpeg_decompress_struct& to_crop) { jpeg_crop_scanline(&to_crop, &left, &width); };
  if (width < info.output_width && !decompressor.run(crop)) throw decompressor.failure();
  raster.width = info.output_width;
  raster.height = rows.end - rows.begin;
  const auto bytes = static_cast<std::size_t>(raster.width * raster.height * 3);
  if (raster.pixels.size() < bytes) raster.pixels.resize(bytes);
  if (cmyk) cmyk_row.resize(std::size_t{info.output_width} * 4);
  if (!read_rows(decompressor, rows, raster.pixels.data(), cmyk ? cmyk_row.data() : nullptr, request.whole)) {
    throw decompressor.failure();
  }
  scaled.x -= static_cast<double>(left);
  scaled.y -= static_cast<double>(rows.begin);
  raster.region = scaled;
}

}  // namespace ddp
