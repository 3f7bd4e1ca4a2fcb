// BMP: no library is needed for so little.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>

#include "data/formats/formats.h"

namespace ddp {
namespace {

constexpr std::uint32_t kRaw = 0;
constexpr std::uint32_t kRle8 = 1;
constexpr std::uint32_t kRle4 = 2;
constexpr std::uint32_t kBitFields = 3;
constexpr std::uint32_t kAlphaBitFields = 6;
constexpr std::size_t kFileHeader = 14;

struct BmpHeader {
  ImageSize size;
  bool top_down = false;
  std::uint32_t bits = 0;
  std::uint32_t compression = kRaw;
  std::size_t pixels = 0;                  // where they begin
  std::array<std::uint32_t, 3> masks{};    // of red, green and blue, for 16 and 32 bits
  std::vector<std::uint8_t> palette = {};  // 256 RGB colours, for up to 8 bits
};

std::uint32_t number_at(std::span<const std::uint8_t> file, std::size_t at, std::size_t count) {
  if (at > file.size() || file.size() - at < count) throw BadImage("is a truncated BMP file");
  std::uint32_t value = 0;
  for (std::size_t i = count; i-- > 0;) value = (value << 8U) | file[at + i];
  return value;
}

// Colours beyond the palette are grey, as in Pillow.
void read_palette(std::span<const std::uint8_t> file, std::size_t at, std::size_t colours, std::size_t stride,
                  BmpHeader& header) {
  header.palette.resize(std::size_t{256} * 3);
  for (std::size_t i = 0; i < 256; ++i)
    std::fill_n(header.palette.begin() + static_cast<std::ptrdiff_t>(3 * i), 3, static_cast<std::uint8_t>(i));
  for (std::size_t i = 0; i < std::min<std::size_t>(colours, 256) && at + (i + 1) * stride <= file.size(); ++i) {
    for (std::size_t c = 0; c < 3; ++c) header.palette[3 * i + c] = file[at + i * stride + 2 - c];
  }
}

void read_masks(std::span<const std::uint8_t> file, BmpHeader& header) {
  if (header.compression == kRaw) {
    header.masks = header.bits == 16 ? std::array{0x7C00U, 0x3E0U, 0x1FU} : std::array{0xFF0000U, 0xFF00U, 0xFFU};
    return;
  }
  // Behind the 40 bytes of the oldest header, or at the same place of a newer one.
  for (std::size_t c = 0; c < 3; ++c) header.masks[c] = number_at(file, kFileHeader + 40 + 4 * c, 4);
  if (header.masks == std::array{0U, 0U, 0U}) header.masks = {0xFF0000U, 0xFF00U, 0xFFU};
  for (const std::uint32_t mask : header.masks) {
    const std::uint32_t value = mask == 0 ? 0 : mask >> static_cast<unsigned>(std::countr_zero(mask));
    if (value == 0 || value > 0xFFFF || !std::has_single_bit(value + 1)) {
      throw BadImage("is a BMP file with bit fields that are not read; convert it to PNG");
    }
  }
}

BmpHeader read_header(std::span<const std::uint8_t> file) {
  BmpHeader header;
  header.pixels = number_at(file, 10, 4);
  const std::size_t length = number_at(file, kFileHeader, 4);
  const bool old = length == 12;  // of OS/2
  if (!old && length < 40)
    throw BadImage(fmt::format("is a BMP file with a header of {} bytes, which is not read", length));
  const std::size_t side = old ? 2 : 4;
  const std::size_t bits_at = kFileHeader + 4 + 2 * side + 2;
  std::int64_t height = number_at(file, kFileHeader + 4 + side, side);
  if (!old) height = static_cast<std::int32_t>(height);
  header.top_down = height < 0;
  header.size = {number_at(file, kFileHeader + 4, side), std::abs(height)};
  header.bits = number_at(file, bits_at, 2);
  header.compression = old ? kRaw : number_at(file, bits_at + 2, 4);
  constexpr std::array kBits = {1U, 2U, 4U, 8U, 16U, 24U, 32U};
  if (std::find(kBits.begin(), kBits.end(), header.bits) == kBits.end()) {
    throw BadImage(fmt::format("is a BMP file with {} bits a pixel, which is not read", header.bits));
  }
  if (header.compression == kAlphaBitFields) header.compression = kBitFields;
  const bool fits = header.compression == kRaw || (header.compression == kRle8 && header.bits == 8) ||
                    (header.compression == kRle4 && header.bits == 4) ||
                    (header.compression == kBitFields && (header.bits == 16 || header.bits == 32));
  if (!fits) {
    throw BadImage(fmt::format("is a BMP file with compression {} of {} bits, which is not read; convert it to PNG",
                               header.compression, header.bits));
  }
  if (header.bits <= 8) {
    std::size_t colours = old ? 0 : number_at(file, kFileHeader + 32, 4);
    if (colours == 0) colours = std::size_t{1} << header.bits;
    read_palette(file, kFileHeader + length, colours, old ? 3 : 4, header);
  } else if (header.bits != 24) {
    read_masks(file, header);
  }
  return header;
}

// A sample of so many levels as one of 256.
std::uint8_t level_in(std::uint32_t pixel, std::uint32_t mask) {
  const auto shift = static_cast<unsigned>(std::countr_zero(mask));
  const std::uint32_t most = mask >> shift;
  return static_cast<std::uint8_t>(std::uint64_t{(pixel & mask) >> shift} * 255 / most);
}

void convert_row(const std::uint8_t* row, const BmpHeader& header, std::uint8_t* to) {
  const std::size_t bits = header.bits;
  for (std::size_t x = 0; x < static_cast<std::size_t>(header.size.width); ++x, to += 3) {
    if (bits <= 8) {
      const std::size_t bit = x * bits;
      const unsigned index = (row[bit / 8] >> (8 - bits - bit % 8)) & ((1U << bits) - 1);
      std::copy_n(header.palette.data() + std::size_t{3} * index, 3, to);
    } else if (bits == 24) {
      for (std::size_t c = 0; c < 3; ++c) to[c] = row[3 * x + 2 - c];
    } else {
      std::uint32_t pixel = 0;
      for (std::size_t i = bits / 8; i-- > 0;) pixel = (pixel << 8U) | row[bits / 8 * x + i];
      for (std::size_t c = 0; c < 3; ++c) to[c] = level_in(pixel, header.masks[c]);
    }
  }
}

// The indices of all pixels, the lowest row first, which run lengths encode.
class RunLengths {
 public:
  RunLengths(std::span<const std::uint8_t> data, const BmpHeader& header, std::vector<std::uint8_t>& indices)
      : data_(data), header_(header), indices_(indices) {
    indices_.assign(static_cast<std::size_t>(header.size.width * header.size.height), 0);
  }

  void decode() {
    while (y_ < header_.size.height) {
      const unsigned count = next();
      const unsigned value = next();
      if (count > 0) {
        for (unsigned i = 0; i < count; ++i) put(part_of(value, i));
      } else if (value == 0) {
        x_ = 0;
        ++y_;
      } else if (value == 1) {
        return;
      } else if (value == 2) {
        x_ += next();
        y_ += next();
      } else {
        copy(value);
      }
    }
  }

 private:
  bool halves() const { return header_.compression == kRle4; }
  unsigned part_of(unsigned byte, unsigned i) const { return !halves() ? byte : i % 2 == 0 ? byte >> 4U : byte & 15U; }

  unsigned next() {
    if (at_ >= data_.size()) throw BadImage("is a truncated BMP file");
    return data_[at_++];
  }
  void put(unsigned index) {
    if (x_ < header_.size.width && y_ < header_.size.height) {
      indices_[static_cast<std::size_t>(y_ * header_.size.width + x_)] = static_cast<std::uint8_t>(index);
    }
    ++x_;
  }
  // Literal indices, padded to an even number of bytes.
  void copy(unsigned count) {
    const unsigned bytes = halves() ? (count + 1) / 2 : count;
    for (unsigned b = 0; b < bytes; ++b) {
      const unsigned byte = next();
      put(part_of(byte, 0));
      if (halves() && 2 * b + 1 < count) put(part_of(byte, 1));
    }
    if (bytes % 2 == 1) next();
  }

  std::span<const std::uint8_t> data_;
  const BmpHeader& header_;
  std::vector<std::uint8_t>& indices_;
  std::size_t at_ = 0;
  std::int64_t x_ = 0;
  std::int64_t y_ = 0;
};

}  // namespace

void decode_bmp(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster) {
  BmpHeader header = read_header(file);
  const auto [width, height] = header.size;
  check_size(header.size, kMaxWholePixels);
  const std::size_t stride = (static_cast<std::size_t>(width) * header.bits + 31) / 32 * 4;
  if (header.pixels > file.size()) throw BadImage("is a truncated BMP file");
  std::span<const std::uint8_t> data = file.subspan(header.pixels);
  const bool runs = header.compression == kRle8 || header.compression == kRle4;
  const std::size_t last = (static_cast<std::size_t>(width) * header.bits + 7) / 8;
  if (!runs && data.size() < stride * static_cast<std::size_t>(height - 1) + last) {
    throw BadImage("is a truncated BMP file");
  }
  begin_whole(header.size, request, raster);
  thread_local std::vector<std::uint8_t> indices;
  if (runs) {
    RunLengths(data, header, indices).decode();
    data = indices;
    header.bits = 8;
  }
  for (std::int64_t y = 0; y < height; ++y) {
    const std::int64_t row = header.top_down ? y : height - 1 - y;
    convert_row(data.data() + static_cast<std::size_t>(row) * (runs ? static_cast<std::size_t>(width) : stride), header,
                raster.pixels.data() + y * width * 3);
  }
}

}  // namespace ddp
