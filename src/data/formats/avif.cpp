// AVIF by libavif; of an animation the first frame.
#include <avif/avif.h>
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "data/formats/formats.h"
#include "data/formats/orientation.h"

namespace ddp {

bool avif_is_supported() { return true; }

namespace {

struct AvifRelease {
  void operator()(avifDecoder* decoder) const { avifDecoderDestroy(decoder); }
};

void require_avif(avifResult result) {
  if (result == AVIF_RESULT_OK) return;
  if (result == AVIF_RESULT_TRUNCATED_DATA) throw BadImage("is a truncated AVIF file");
  throw BadImage(fmt::format("is a damaged AVIF file: {}", avifResultToString(result)));
}

// The rotation and the mirroring of the file as an EXIF orientation.
unsigned orientation_value(const avifImage& image) {
#if AVIF_VERSION >= 1000000
  const bool axis = image.imir.axis != 0;
#else
  const bool axis = image.imir.mode != 0;
#endif
  const bool mirrored = (image.transformFlags & AVIF_TRANSFORM_IMIR) != 0;
  const unsigned angle = (image.transformFlags & AVIF_TRANSFORM_IROT) != 0 ? image.irot.angle : 0U;
  switch (angle) {
    case 1:
      return !mirrored ? 8 : axis ? 7 : 5;
    case 2:
      return !mirrored ? 3 : axis ? 4 : 2;
    case 3:
      return !mirrored ? 6 : axis ? 5 : 7;
    default:
      return !mirrored ? 1 : axis ? 2 : 4;
  }
}

}  // namespace

void decode_avif(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster) {
  const std::unique_ptr<avifDecoder, AvifRelease> decoder(avifDecoderCreate());
  if (!decoder) throw Error(ExitCode::out_of_memory, "no memory for an AVIF decoder");
  // Loader threads decode files side by side.
  decoder->maxThreads = 1;
  decoder->ignoreExif = AVIF_TRUE;
  decoder->ignoreXMP = AVIF_TRUE;
  decoder->imageSizeLimit = static_cast<std::uint32_t>(kMaxWholePixels);
  require_avif(avifDecoderSetIOMemory(decoder.get(), file.data(), file.size()));
  require_avif(avifDecoderParse(decoder.get()));
  const avifImage& image = *decoder->image;
  const ImageSize size{image.width, image.height};
  check_size(size, kMaxWholePixels);
  const Orientation orientation = orientation_of_value(request.upright ? orientation_value(image) : 1);
  const RegionChooser choose = [&](const ImageSize& stored) {
    return stored_region(request.choose(turned_size(stored, orientation)), stored, orientation);
  };
  begin_whole(size, {.choose = choose, .pixels = request.pixels}, raster);
  require_avif(avifDecoderNextImage(decoder.get()));
  if (image.width != size.width || image.height != size.height) throw BadImage("is a damaged AVIF file");
  avifRGBImage rgb;
  avifRGBImageSetDefaults(&rgb, decoder->image);
  // With alpha, or libavif would multiply colours with it.
  thread_local std::vector<std::uint8_t> scratch;
  const auto pixels = static_cast<std::size_t>(size.width * size.height);
  if (scratch.size() < 4 * pixels) scratch.resize(4 * pixels);
  rgb.format = AVIF_RGB_FORMAT_RGBA;
  rgb.depth = 8;
  rgb.pixels = scratch.data();
  rgb.rowBytes = static_cast<std::uint32_t>(size.width * 4);
  require_avif(avifImageYUVToRGB(decoder->image, &rgb));
  for (std::size_t i = 0; i < pixels; ++i) std::copy_n(scratch.data() + 4 * i, 3, raster.pixels.data() + 3 * i);
  if (orientation.turns()) turn(raster, orientation, scratch);
}

}  // namespace ddp
