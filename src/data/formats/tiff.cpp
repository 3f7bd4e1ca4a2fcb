// TIFF by libtiff: the first page, with 1 to 16 bits.
#include <fmt/core.h>
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "data/formats/formats.h"
#include "data/formats/orientation.h"

namespace ddp {

bool tiff_is_supported() { return true; }

namespace {

constexpr std::int64_t kMostSamples = 16;
constexpr std::int64_t kMostTileBytes = std::int64_t{1} << 28;

// The file in memory, as libtiff reads it.
struct TiffSource {
  std::span<const std::uint8_t> file;
  std::uint64_t at = 0;
};

TiffSource& source_of(thandle_t handle) { return *static_cast<TiffSource*>(handle); }

tmsize_t read_tiff(thandle_t handle, void* to, tmsize_t count) {
  TiffSource& source = source_of(handle);
  const std::uint64_t left = source.file.size() - std::min<std::uint64_t>(source.at, source.file.size());
  const auto taken = static_cast<std::size_t>(std::min<std::uint64_t>(left, static_cast<std::uint64_t>(count)));
  if (taken > 0) std::memcpy(to, source.file.data() + source.at, taken);
  source.at += taken;
  return static_cast<tmsize_t>(taken);
}

tmsize_t write_tiff(thandle_t /*handle*/, void* /*from*/, tmsize_t /*count*/) { return 0; }

toff_t seek_tiff(thandle_t handle, toff_t offset, int whence) {
  TiffSource& source = source_of(handle);
  const std::uint64_t from = whence == SEEK_CUR ? source.at : whence == SEEK_END ? source.file.size() : 0;
  source.at = from + offset;
  return source.at;
}

int close_tiff(thandle_t /*handle*/) { return 0; }
toff_t tiff_bytes(thandle_t handle) { return source_of(handle).file.size(); }

struct TiffCloser {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};
using Tiff = std::unique_ptr<TIFF, TiffCloser>;

[[noreturn]] void damaged() { throw BadImage("is a damaged or truncated TIFF file"); }

Tiff open_tiff(TiffSource& source) {
  // Its messages are for programs of its own.
  static const bool silent = [] {
    TIFFSetErrorHandler(nullptr);
    TIFFSetWarningHandler(nullptr);
    return true;
  }();
  (void)silent;
  Tiff tiff(
      TIFFClientOpen("", "rm", &source, read_tiff, write_tiff, seek_tiff, close_tiff, tiff_bytes, nullptr, nullptr));
  if (!tiff) damaged();
  return tiff;
}

struct TiffHeader {
  ImageSize size;
  std::uint16_t bits = 1;
  std::uint16_t samples = 1;
  std::uint16_t photometric = PHOTOMETRIC_MINISBLACK;
  std::uint16_t planar = PLANARCONFIG_CONTIG;
  std::uint16_t orientation = 1;
  bool premultiplied = false;
  bool by_library = false;  // libtiff converts the colours
};

template <class Value>
Value field(const Tiff& tiff, std::uint32_t tag, Value standard) {
  Value value = standard;
  return TIFFGetFieldDefaulted(tiff.get(), tag, &value) == 1 ? value : standard;
}

void check_kind(const TiffHeader& header, std::uint16_t format) {
  constexpr std::array kBits = {1, 2, 4, 8, 12, 16};
  if (format != SAMPLEFORMAT_UINT && format != SAMPLEFORMAT_VOID) {
    throw BadImage(fmt::format("is a TIFF file with {}, which are not read; convert it to 8 or 16 bits",
                               format == SAMPLEFORMAT_INT      ? "signed samples"
                               : format == SAMPLEFORMAT_IEEEFP ? "floating-point samples"
                                                               : "complex samples"));
  }
  if (std::find(kBits.begin(), kBits.end(), header.bits) == kBits.end()) {
    throw BadImage(
        fmt::format("is a TIFF file with {} bits a sample, which is not read; convert it to 8 or 16", header.bits));
  }
  const auto needs = [&](std::uint16_t least) {
    if (header.samples < least || header.samples > kMostSamples) {
      throw BadImage(fmt::format("is a TIFF file with {} samples a pixel, which is not read", header.samples));
    }
  };
  switch (header.photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
      return needs(1);
    case PHOTOMETRIC_PALETTE:
      if (header.bits > 8) damaged();
      return needs(1);
    case PHOTOMETRIC_RGB:
    case PHOTOMETRIC_YCBCR:
      return needs(3);
    case PHOTOMETRIC_SEPARATED:
      return needs(4);
    default:
      throw BadImage(fmt::format("is a TIFF file with colours of kind {} (as CIE Lab), which are not read; convert it",
                                 header.photometric));
  }
}

TiffHeader read_tiff_header(const Tiff& tiff) {
  TiffHeader header;
  header.size = {field<std::uint32_t>(tiff, TIFFTAG_IMAGEWIDTH, 0), field<std::uint32_t>(tiff, TIFFTAG_IMAGELENGTH, 0)};
  header.bits = field<std::uint16_t>(tiff, TIFFTAG_BITSPERSAMPLE, 1);
  header.samples = field<std::uint16_t>(tiff, TIFFTAG_SAMPLESPERPIXEL, 1);
  // Without a default in libtiff.
  std::uint16_t photometric = 0;
  if (TIFFGetField(tiff.get(), TIFFTAG_PHOTOMETRIC, &photometric) != 1) damaged();
  header.photometric = photometric;
  header.planar = field<std::uint16_t>(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
  header.orientation = field<std::uint16_t>(tiff, TIFFTAG_ORIENTATION, 1);
  std::uint16_t extras = 0;
  std::uint16_t* kinds = nullptr;
  if (TIFFGetFieldDefaulted(tiff.get(), TIFFTAG_EXTRASAMPLES, &extras, &kinds) == 1 && extras > 0) {
    header.premultiplied = header.photometric == PHOTOMETRIC_RGB && kinds[0] == EXTRASAMPLE_ASSOCALPHA;
  }
  check_kind(header, field<std::uint16_t>(tiff, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT));
  if (header.photometric == PHOTOMETRIC_YCBCR) {
    const auto compression = field<std::uint16_t>(tiff, TIFFTAG_COMPRESSION, COMPRESSION_NONE);
    if (compression == COMPRESSION_JPEG && header.planar == PLANARCONFIG_CONTIG) {
      TIFFSetField(tiff.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
      header.photometric = PHOTOMETRIC_RGB;
    } else {
      header.by_library = true;
    }
  }
  return header;
}

// A sample with 8 bits; an index as it is.
std::uint8_t sample_at(const std::uint8_t* row, std::size_t i, const TiffHeader& header) {
  switch (header.bits) {
    case 8:
      return row[i];
    case 16: {
      std::uint16_t value = 0;
      std::memcpy(&value, row + 2 * i, 2);
      return static_cast<std::uint8_t>(value >> 8U);
    }
    case 12: {
      const std::uint8_t* at = row + i / 2 * 3;
      return i % 2 == 0 ? at[0] : static_cast<std::uint8_t>((at[1] << 4U) | (at[2] >> 4U));
    }
    default: {
      const std::size_t bit = i * header.bits;
      const unsigned most = (1U << header.bits) - 1;
      const unsigned value = (row[bit / 8] >> (8 - header.bits - bit % 8)) & most;
      return static_cast<std::uint8_t>(header.photometric == PHOTOMETRIC_PALETTE ? value : value * 255 / most);
    }
  }
}

// A strip or tile of the file: where it lies, and how its rows are stored.
struct Block {
  std::int64_t x = 0;
  std::int64_t y = 0;
  std::int64_t width = 0;  // of its rows
  std::int64_t rows = 0;
};

// The samples of the first planes, with 8 bits: [height][width][channels].
class SampleReader {
 public:
  SampleReader(const Tiff& tiff, const TiffHeader& header, std::int64_t channels, std::vector<std::uint8_t>& samples)
      : tiff_(tiff), header_(header), channels_(channels), samples_(samples) {
    samples_.resize(static_cast<std::size_t>(header.size.width * header.size.height * channels));
  }

  void read() {
    const bool tiled = TIFFIsTiled(tiff_.get()) != 0;
    const std::int64_t width = tiled ? field<std::uint32_t>(tiff_, TIFFTAG_TILEWIDTH, 0) : header_.size.width;
    const std::int64_t rows =
        tiled ? field<std::uint32_t>(tiff_, TIFFTAG_TILELENGTH, 0)
              : std::min<std::int64_t>(field<std::uint32_t>(tiff_, TIFFTAG_ROWSPERSTRIP, 0xFFFFFFFF),
                                       header_.size.height);
    const tmsize_t bytes = tiled ? TIFFTileSize(tiff_.get()) : TIFFStripSize(tiff_.get());
    if (width <= 0 || rows <= 0 || bytes <= 0 || bytes > kMostTileBytes) damaged();
    buffer_.resize(static_cast<std::size_t>(bytes));
    const bool separate = header_.planar == PLANARCONFIG_SEPARATE;
    std::uint32_t index = 0;
    for (std::int64_t plane = 0; plane < (separate ? channels_ : 1); ++plane) {
      for (std::int64_t y = 0; y < header_.size.height; y += rows) {
        for (std::int64_t x = 0; x < header_.size.width; x += width, ++index) {
          read_block(tiled, index, {x, y, width, std::min(rows, header_.size.height - y)}, separate, plane);
        }
      }
    }
  }

 private:
  void read_block(bool tiled, std::uint32_t index, const Block& block, bool separate, std::int64_t plane) {
    const auto bytes = static_cast<tmsize_t>(buffer_.size());
    const std::int64_t stored = separate ? 1 : header_.samples;
    const auto stride = static_cast<std::size_t>((block.width * stored * header_.bits + 7) / 8);
    const tmsize_t found = tiled ? TIFFReadEncodedTile(tiff_.get(), index, buffer_.data(), bytes)
                                 : TIFFReadEncodedStrip(tiff_.get(), index, buffer_.data(), bytes);
    if (found < static_cast<tmsize_t>(stride) * block.rows) damaged();
    const std::int64_t columns = std::min(block.width, header_.size.width - block.x);
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const std::uint8_t* row = buffer_.data() + static_cast<std::size_t>(r) * stride;
      std::uint8_t* to = samples_.data() + ((block.y + r) * header_.size.width + block.x) * channels_;
      for (std::int64_t x = 0; x < columns; ++x, to += channels_) {
        if (separate) {
          to[plane] = sample_at(row, static_cast<std::size_t>(x), header_);
          continue;
        }
        for (std::int64_t c = 0; c < channels_; ++c) {
          to[c] = sample_at(row, static_cast<std::size_t>(x * stored + c), header_);
        }
      }
    }
  }

  const Tiff& tiff_;
  const TiffHeader& header_;
  std::int64_t channels_;
  std::vector<std::uint8_t>& samples_;
  std::vector<std::uint8_t> buffer_;
};

// As Pillow divides by alpha.
std::uint8_t divided(unsigned value, unsigned alpha) {
  if (alpha == 0 || alpha == 255) return static_cast<std::uint8_t>(alpha == 0 ? 0 : value);
  return static_cast<std::uint8_t>(std::min(255U, value * 255 / alpha));
}

// As Pillow mixes ink.
std::uint8_t printed(unsigned ink, unsigned black) {
  const unsigned light = 255 - black;
  const unsigned product = ink * light + 128;
  return static_cast<std::uint8_t>(
      std::max(0, static_cast<int>(light) - static_cast<int>(((product >> 8U) + product) >> 8U)));
}

using Palette = std::array<const std::uint16_t*, 3>;

void convert_pixel(const std::uint8_t* from, const TiffHeader& header, const Palette& palette, std::uint8_t* to) {
  switch (header.photometric) {
    case PHOTOMETRIC_MINISWHITE:
      std::fill_n(to, 3, static_cast<std::uint8_t>(255 - from[0]));
      break;
    case PHOTOMETRIC_MINISBLACK:
      std::fill_n(to, 3, from[0]);
      break;
    case PHOTOMETRIC_PALETTE:
      for (std::size_t c = 0; c < 3; ++c) to[c] = static_cast<std::uint8_t>(palette[c][from[0]] >> 8U);
      break;
    case PHOTOMETRIC_SEPARATED:
      for (std::size_t c = 0; c < 3; ++c) to[c] = printed(from[c], from[3]);
      break;
    default:
      for (std::size_t c = 0; c < 3; ++c) to[c] = header.premultiplied ? divided(from[c], from[3]) : from[c];
  }
}

void read_by_library(const Tiff& tiff, const TiffHeader& header, Raster& raster) {
  std::vector<std::uint32_t> packed(static_cast<std::size_t>(header.size.width * header.size.height));
  // In the order of the file, which is turned afterwards.
  if (TIFFReadRGBAImageOriented(tiff.get(), static_cast<std::uint32_t>(header.size.width),
                                static_cast<std::uint32_t>(header.size.height), packed.data(), header.orientation,
                                1) != 1) {
    damaged();
  }
  std::uint8_t* to = raster.pixels.data();
  for (const std::uint32_t pixel : packed) {
    *to++ = static_cast<std::uint8_t>(TIFFGetR(pixel));
    *to++ = static_cast<std::uint8_t>(TIFFGetG(pixel));
    *to++ = static_cast<std::uint8_t>(TIFFGetB(pixel));
  }
}

void read_samples(const Tiff& tiff, const TiffHeader& header, Raster& raster) {
  const bool coloured = header.photometric == PHOTOMETRIC_RGB || header.photometric == PHOTOMETRIC_SEPARATED;
  const bool four = header.photometric == PHOTOMETRIC_SEPARATED || header.premultiplied;
  const std::int64_t channels = four ? 4 : coloured ? 3 : 1;
  std::array<std::uint16_t*, 3> colours{};
  if (header.photometric == PHOTOMETRIC_PALETTE &&
      TIFFGetField(tiff.get(), TIFFTAG_COLORMAP, colours.data(), colours.data() + 1, colours.data() + 2) != 1) {
    damaged();
  }
  const Palette palette = {colours[0], colours[1], colours[2]};
  thread_local std::vector<std::uint8_t> samples;
  SampleReader(tiff, header, channels, samples).read();
  for (std::int64_t i = 0; i < header.size.width * header.size.height; ++i) {
    convert_pixel(samples.data() + i * channels, header, palette, raster.pixels.data() + 3 * i);
  }
}

}  // namespace

void decode_tiff(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster) {
  TiffSource source{file};
  const Tiff tiff = open_tiff(source);
  const TiffHeader header = read_tiff_header(tiff);
  check_size(header.size, kMaxWholePixels);
  // Pillow turns TIFF files always: this orientation is part of the format.
  const Orientation orientation = orientation_of_value(header.orientation);
  const RegionChooser choose = [&](const ImageSize& stored) {
    return stored_region(request.choose(turned_size(stored, orientation)), stored, orientation);
  };
  begin_whole(header.size, {.choose = choose, .pixels = request.pixels}, raster);
  if (header.by_library) {
    read_by_library(tiff, header, raster);
  } else {
    read_samples(tiff, header, raster);
  }
  thread_local std::vector<std::uint8_t> scratch;
  if (orientation.turns()) turn(raster, orientation, scratch);
}

}  // namespace ddp
