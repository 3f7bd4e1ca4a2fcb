// GIF by giflib: the first frame.
#include <fmt/core.h>
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "base/error.h"
#include "data/formats/formats.h"

namespace ddp {

bool gif_is_supported() { return true; }

namespace {

struct GifCloser {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using Gif = std::unique_ptr<GifFileType, GifCloser>;

int read_gif(GifFileType* gif, GifByteType* to, int count) {
  auto& left = *static_cast<std::span<const std::uint8_t>*>(gif->UserData);
  const std::size_t taken = std::min(left.size(), static_cast<std::size_t>(count));
  std::memcpy(to, left.data(), taken);
  left = left.subspan(taken);
  return static_cast<int>(taken);
}

[[noreturn]] void gif_failed(int code) {
  if (code == D_GIF_ERR_NOT_ENOUGH_MEM) throw Error(ExitCode::out_of_memory, "no memory for a GIF decoder");
  if (code == D_GIF_ERR_READ_FAILED || code == D_GIF_ERR_EOF_TOO_SOON) throw BadImage("is a truncated GIF file");
  const char* text = GifErrorString(code);
  throw BadImage(fmt::format("is a damaged GIF file: {}", text == nullptr ? "no image data" : text));
}

void require(const Gif& gif, int result) {
  if (result == GIF_ERROR) gif_failed(gif->Error);
}

// Reads up to the first frame; returns the transparent colour before it.
std::optional<int> find_frame(const Gif& gif) {
  std::optional<int> transparent;
  for (;;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    require(gif, DGifGetRecordType(gif.get(), &type));
    if (type == TERMINATE_RECORD_TYPE) throw BadImage("is a GIF file without an image");
    if (type == IMAGE_DESC_RECORD_TYPE) break;
    int code = 0;
    GifByteType* block = nullptr;
    require(gif, DGifGetExtension(gif.get(), &code, &block));
    // The first byte is the length.
    if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr && block[0] >= 4 && (block[1] & 1) != 0) {
      transparent = block[4];
    }
    while (block != nullptr) require(gif, DGifGetExtensionNext(gif.get(), &block));
  }
  require(gif, DGifGetImageDesc(gif.get()));
  return transparent;
}

// Colours beyond the palette are grey, as in Pillow.
std::array<std::array<std::uint8_t, 3>, 256> palette_of(const Gif& gif) {
  std::array<std::array<std::uint8_t, 3>, 256> palette;
  for (std::size_t i = 0; i < palette.size(); ++i) palette[i].fill(static_cast<std::uint8_t>(i));
  const ColorMapObject* colours = gif->Image.ColorMap != nullptr ? gif->Image.ColorMap : gif->SColorMap;
  if (colours == nullptr) return palette;
  for (int i = 0; i < std::min(colours->ColorCount, 256); ++i) {
    const GifColorType& colour = colours->Colors[i];
    palette[static_cast<std::size_t>(i)] = {colour.Red, colour.Green, colour.Blue};
  }
  return palette;
}

}  // namespace

void decode_gif(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster) {
  std::span<const std::uint8_t> left = file;
  int failure = 0;
  const Gif gif(DGifOpen(&left, read_gif, &failure));
  if (!gif) gif_failed(failure);
  const std::optional<int> transparent = find_frame(gif);
  const GifImageDesc& frame = gif->Image;
  if (frame.Width <= 0 || frame.Height <= 0) throw BadImage("is a GIF file without pixels");
  // A frame may be larger than the screen.
  const ImageSize size{std::max(gif->SWidth, frame.Left + frame.Width),
                       std::max(gif->SHeight, frame.Top + frame.Height)};
  begin_whole(size, request, raster);
  const auto palette = palette_of(gif);
  const auto& around = palette[static_cast<std::size_t>(transparent.value_or(0))];
  const bool covered = frame.Width == size.width && frame.Height == size.height;
  for (std::int64_t i = 0; !covered && i < size.width * size.height; ++i) {
    std::copy_n(around.data(), 3, raster.pixels.data() + 3 * i);
  }
  thread_local std::vector<GifPixelType> line;
  line.resize(static_cast<std::size_t>(frame.Width));
  constexpr std::array<std::array<int, 2>, 4> kPasses = {{{0, 8}, {4, 8}, {2, 4}, {1, 2}}};
  constexpr std::array<std::array<int, 2>, 1> kOnePass = {{{0, 1}}};
  const std::span<const std::array<int, 2>> passes =
      frame.Interlace ? std::span<const std::array<int, 2>>(kPasses) : std::span<const std::array<int, 2>>(kOnePass);
  for (const auto& [first, step] : passes) {
    for (int y = first; y < frame.Height; y += step) {
      require(gif, DGifGetLine(gif.get(), line.data(), frame.Width));
      std::uint8_t* to = raster.pixels.data() + ((frame.Top + y) * size.width + frame.Left) * 3;
      for (const GifPixelType index : line) to = std::copy_n(palette[index].data(), 3, to);
    }
  }
}

}  // namespace ddp
