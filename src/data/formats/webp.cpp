// WebP by libwebp, lossy and lossless; of an animation the first frame.
#include <fmt/core.h>
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "data/formats/formats.h"

namespace ddp {

bool webp_is_supported() { return true; }

namespace {

void decode_into(std::span<const std::uint8_t> file, WebPDecoderConfig& config) {
  const VP8StatusCode decoded = WebPDecode(file.data(), file.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (decoded == VP8_STATUS_OUT_OF_MEMORY) throw Error(ExitCode::out_of_memory, "no memory for a WebP decoder");
  if (decoded == VP8_STATUS_NOT_ENOUGH_DATA) throw BadImage("is a truncated WebP file");
  if (decoded != VP8_STATUS_OK) throw BadImage("is a damaged WebP file");
}

// The part of the image in `columns` and `rows`, as RGB.
void decode_webp_part(std::span<const std::uint8_t> file, const PixelSpan& columns, const PixelSpan& rows,
                      WebPDecoderConfig& config, std::vector<std::uint8_t>& pixels) {
  const std::int64_t width = columns.end - columns.begin;
  const std::int64_t height = rows.end - rows.begin;
  const auto bytes = static_cast<std::size_t>(width * height * 3);
  if (pixels.size() < bytes) pixels.resize(bytes);
  config.options.use_cropping = 1;
  config.options.crop_left = static_cast<int>(columns.begin);
  config.options.crop_top = static_cast<int>(rows.begin);
  config.options.crop_width = static_cast<int>(width);
  config.options.crop_height = static_cast<int>(height);
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = pixels.data();
  config.output.u.RGBA.stride = static_cast<int>(width * 3);
  config.output.u.RGBA.size = bytes;
  decode_into(file, config);
}

// A whole frame, into rows of `width` pixels.
void decode_pixels(std::span<const std::uint8_t> file, std::uint8_t* to, std::int64_t width,
                   const WebPIterator& frame) {
  WebPDecoderConfig config{};
  if (WebPInitDecoderConfig(&config) == 0)
    throw Error(ExitCode::internal, "libwebp has another version than its header");
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = to;
  config.output.u.RGBA.stride = static_cast<int>(width * 3);
  config.output.u.RGBA.size = static_cast<std::size_t>((frame.height - 1) * width * 3 + frame.width * 3);
  decode_into(file, config);
}

struct DemuxerRelease {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

// The first frame, where it lies on its canvas, whose other pixels are black.
void decode_first_frame(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster) {
  const WebPData data{file.data(), file.size()};
  const std::unique_ptr<WebPDemuxer, DemuxerRelease> demuxer(WebPDemux(&data));
  if (!demuxer) throw BadImage("is a damaged or truncated WebP file");
  const ImageSize canvas{WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
                         WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT)};
  begin_whole(canvas, request, raster);
  WebPIterator frame{};
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) throw BadImage("is a WebP file without a frame");
  const std::unique_ptr<WebPIterator, decltype(&WebPDemuxReleaseIterator)> release(&frame, WebPDemuxReleaseIterator);
  if (frame.x_offset + frame.width > canvas.width || frame.y_offset + frame.height > canvas.height) {
    throw BadImage("is a damaged WebP file");
  }
  if (frame.width == canvas.width && frame.height == canvas.height) {
    return decode_pixels({frame.fragment.bytes, frame.fragment.size}, raster.pixels.data(), canvas.width, frame);
  }
  std::fill_n(raster.pixels.begin(), canvas.width * canvas.height * 3, std::uint8_t{0});
  decode_pixels({frame.fragment.bytes, frame.fragment.size},
                raster.pixels.data() + (frame.y_offset * canvas.width + frame.x_offset) * 3, canvas.width, frame);
}

}  // namespace

void decode_webp(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster) {
  WebPDecoderConfig config{};
  if (WebPInitDecoderConfig(&config) == 0)
    throw Error(ExitCode::internal, "libwebp has another version than its header");
  const VP8StatusCode found = WebPGetFeatures(file.data(), file.size(), &config.input);
  if (found == VP8_STATUS_NOT_ENOUGH_DATA) throw BadImage("is a truncated WebP file");
  if (found != VP8_STATUS_OK) throw BadImage("is a damaged WebP file");
  if (config.input.has_animation != 0) return decode_first_frame(file, request, raster);
  // Its format has at most 2^14 pixels in each direction, so that sizes cannot overflow.
  const ImageSize size{config.input.width, config.input.height};
  if (size.width * size.height > kMaxImagePixels) {
    throw BadImage(
        fmt::format("is {}x{} pixels large, more than the maximum of {}", size.width, size.height, kMaxImagePixels));
  }
  Region region = request.choose(size);
  const PixelSpan all_rows{0, size.height};
  const PixelSpan all_columns{0, size.width};
  PixelSpan rows = request.whole ? all_rows : touched_pixels(region.y, region.height, size.height);
  PixelSpan columns = request.whole ? all_columns : touched_pixels(region.x, region.width, size.width);
  // A lossy image is cropped at even places, where it has colours.
  rows.begin &= ~std::int64_t{1};
  columns.begin &= ~std::int64_t{1};
  raster.width = columns.end - columns.begin;
  raster.height = rows.end - rows.begin;
  // libwebp stops below the region. The pixels of a part are not those of the whole, so that both are decoded.
  if (request.verify && raster.width * raster.height < size.width * size.height) {
    decode_webp_part(file, all_columns, all_rows, config, raster.pixels);
  }
  decode_webp_part(file, columns, rows, config, raster.pixels);
  region.x -= static_cast<double>(columns.begin);
  region.y -= static_cast<double>(rows.begin);
  raster.region = region;
}

}  // namespace ddp
