// PNG by libpng.
#include <fmt/core.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "data/formats/formats.h"

namespace ddp {
namespace {

struct Source {
  std::span<const std::uint8_t> left;
  std::string message;
  std::string damage;  // of the pixels, which libpng only warns about; empty: none
  std::jmp_buf leave;
};

// libpng's errors leave by longjmp, not by exceptions, because its frames are C code.
[[noreturn]] void leave(png_structp png, png_const_charp message) {
  auto& source = *static_cast<Source*>(png_get_error_ptr(png));
  source.message = message;
  std::longjmp(source.leave, 1);  // NOLINT(modernize-avoid-setjmp-longjmp,cert-err52-cpp)
}

// Behind the last row, a wrong checksum of the pixels is a warning; more data than pixels do no harm.
void keep_damage(png_structp png, png_const_charp message) {
  const std::string_view text = message;
  if (!text.starts_with("IDAT: ") || text.ends_with("Extra compressed data") || text.ends_with("Too much image data")) {
    return;
  }
  static_cast<Source*>(png_get_error_ptr(png))->damage = text;
}

void read_bytes(png_structp png, png_bytep to, std::size_t count) {
  auto& source = *static_cast<Source*>(png_get_io_ptr(png));
  if (count > source.left.size()) png_error(png, "its data is truncated");
  std::memcpy(to, source.left.data(), count);
  source.left = source.left.subspan(count);
}

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> file)
      : source_{file, {}, {}, {}},
        png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, &source_, leave, keep_damage)),
        info_(png_ != nullptr ? png_create_info_struct(png_) : nullptr) {
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw Error(ExitCode::out_of_memory, "no memory for a PNG decoder");
    }
    png_set_read_fn(png_, &source_, read_bytes);
    // The total is checked beforehand; libpng's own limits would reject sizes that the JPEG decoder accepts.
    png_set_user_limits(png_, 0x7FFFFFFF, 0x7FFFFFFF);
    // Some encoders state a smaller window than they use. Other decoders, Pillow's too, do not rely on it.
    png_set_option(png_, PNG_MAXIMUM_INFLATE_WINDOW, PNG_OPTION_ON);
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  png_structp png() { return png_; }
  png_infop info() { return info_; }
  const std::string& damage() const { return source_.damage; }
  // Runs `work`, which must own nothing that needs a destructor; throws if libpng failed.
  template <class Work>
  void run(const Work& work) {
    if (setjmp(source_.leave) != 0) {  // NOLINT(modernize-avoid-setjmp-longjmp,cert-err52-cpp)
      throw BadImage(fmt::format("is a damaged PNG file: {}", source_.message));
    }
    work(png_, info_);
  }

 private:
  Source source_;
  png_structp png_;
  png_infop info_;
};

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return (std::uint32_t{bytes[0]} << 24U) | (std::uint32_t{bytes[1]} << 16U) | (std::uint32_t{bytes[2]} << 8U) |
         std::uint32_t{bytes[3]};
}

// Searches the chunks for IEND.
bool has_end_chunk(std::span<const std::uint8_t> file) {
  std::size_t at = 8;
  while (at + 12 <= file.size()) {
    if (std::memcmp(file.data() + at + 4, "IEND", 4) == 0) return true;
    at += std::size_t{12} + big_endian(file.data() + at);
  }
  return false;
}

// Averages over squares of `side` by `side` pixels, fed row by row. Squares at the edges may be partial.
class SquareMean {
 public:
  SquareMean(std::int64_t side, PixelSpan columns, std::int64_t image_width, std::vector<std::uint32_t>& sums)
      : side_(side), columns_(columns), image_width_(image_width), sums_(sums) {
    sums_.assign(static_cast<std::size_t>((columns.end - columns.begin) * 3), 0);
  }

  void add(const std::uint8_t* row) {
    ++rows_;
    for (std::int64_t x = columns_.begin; x < columns_.end; ++x) {
      std::uint32_t* sum = sums_.data() + (x - columns_.begin) * 3;
      const std::int64_t end = std::min((x + 1) * side_, image_width_);
      for (std::int64_t from = x * side_; from < end; ++from) {
        for (std::int64_t c = 0; c < 3; ++c) sum[c] += row[from * 3 + c];
      }
    }
  }
  void finish(std::uint8_t* to) {
    for (std::int64_t x = columns_.begin; x < columns_.end; ++x) {
      const std::int64_t width = std::min((x + 1) * side_, image_width_) - x * side_;
      const auto count = static_cast<std::uint32_t>(width * rows_);
      for (std::int64_t c = 0; c < 3; ++c) {
        const auto at = static_cast<std::size_t>((x - columns_.begin) * 3 + c);
        to[at] = static_cast<std::uint8_t>((sums_[at] + count / 2) / count);
      }
    }
    std::fill(sums_.begin(), sums_.end(), 0U);
    rows_ = 0;
  }

 private:
  std::int64_t side_;
  PixelSpan columns_;  // of squares
  std::int64_t image_width_;
  std::int64_t rows_ = 0;
  std::vector<std::uint32_t>& sums_;
};

// Converts every format to 8-bit RGB. Pillow takes the upper half of 16 bits.
void convert_to_rgb(png_structp png, png_infop info, bool as_pillow) {
  png_set_expand(png);
  if (as_pillow) {
    png_set_strip_16(png);
  } else {
    png_set_scale_16(png);
  }
  png_set_strip_alpha(png);
  png_set_gray_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
}

}  // namespace

void decode_png(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster) {
  // The header is the first chunk, at a fixed place.
  if (file.size() < 33 || std::memcmp(file.data() + 12, "IHDR", 4) != 0) throw BadImage("is a PNG file without header");
  const ImageSize size{big_endian(file.data() + 16), big_endian(file.data() + 20)};
  const bool interlaced = file[28] != 0;
  const std::int64_t limit = interlaced ? kMaxWholePixels : kMaxImagePixels;
  if (size.width > 0 && size.height > limit / size.width) {
    throw BadImage(fmt::format("is {}x{} pixels large, more than the maximum of {}", size.width, size.height, limit));
  }
  if (!has_end_chunk(file)) throw BadImage("is a truncated PNG file");
  Reader reader(file);
  reader.run([&](png_structp png, png_infop info) {
    png_read_info(png, info);
    convert_to_rgb(png, info, request.whole);
  });
  const Region region = request.choose(size);
  const std::int64_t side = request.whole ? 1 : reduction_of(region, request.pixels);
  const auto divisor = static_cast<double>(side);
  Region scaled{region.x / divisor, region.y / divisor, region.width / divisor, region.height / divisor,
                region.mirrored};
  const PixelSpan rows = request.whole ? PixelSpan{0, size.height}
                                       : touched_pixels(scaled.y, scaled.height, (size.height + side - 1) / side);
  const PixelSpan columns =
      request.whole ? PixelSpan{0, size.width} : touched_pixels(scaled.x, scaled.width, (size.width + side - 1) / side);
  raster.width = columns.end - columns.begin;
  raster.height = rows.end - rows.begin;
  const auto bytes = static_cast<std::size_t>(raster.width * raster.height * 3);
  if (raster.pixels.size() < bytes) raster.pixels.resize(bytes);
  thread_local std::vector<std::uint8_t> lines;
  thread_local std::vector<std::uint32_t> sums;
  const auto stride = static_cast<std::size_t>(size.width * 3);
  lines.resize(interlaced ? stride * static_cast<std::size_t>(size.height) : stride);
  SquareMean mean(side, columns, size.width, sums);
  const std::int64_t last = std::min(rows.end * side, size.height);
  if (interlaced) {
    reader.run([&](png_structp png, png_infop) {
      for (int pass = 0; pass < 7; ++pass) {
        for (std::int64_t y = 0; y < size.height; ++y) png_read_row(png, lines.data() + y * stride, nullptr);
      }
    });
  }
  reader.run([&](png_structp png, png_infop) {
    for (std::int64_t y = 0; y < last; ++y) {
      if (!interlaced) png_read_row(png, lines.data(), nullptr);
      if (y < rows.begin * side) continue;
      const std::uint8_t* line = interlaced ? lines.data() + y * stride : lines.data();
      std::uint8_t* to = raster.pixels.data() + (y / side - rows.begin) * raster.width * 3;
      if (side == 1) {
        std::copy_n(line + columns.begin * 3, raster.width * 3, to);
        continue;
      }
      mean.add(line);
      if ((y + 1) % side == 0 || y + 1 == last) mean.finish(to);
    }
  });
  if (request.verify) {
    reader.run([&](png_structp png, png_infop) {
      for (std::int64_t y = last; y < size.height && !interlaced; ++y) png_read_row(png, lines.data(), nullptr);
      png_read_end(png, nullptr);
    });
    if (!reader.damage().empty()) throw BadImage(fmt::format("is a damaged PNG file: {}", reader.damage()));
  }
  scaled.x -= static_cast<double>(columns.begin);
  scaled.y -= static_cast<double>(rows.begin);
  raster.region = scaled;
}

}  // namespace ddp
