// HEIC by libheif: the primary picture, turned and cropped as the file says.
#include <fmt/core.h>
#include <libheif/heif.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "data/formats/formats.h"

namespace ddp {

bool heif_is_supported() { return true; }

namespace {

struct HeifRelease {
  void operator()(heif_context* context) const { heif_context_free(context); }
  void operator()(heif_image_handle* handle) const { heif_image_handle_release(handle); }
  void operator()(heif_image* image) const { heif_image_release(image); }
};

void require_heif(const heif_error& error) {
  if (error.code == heif_error_Ok) return;
  if (error.code == heif_error_Memory_allocation_error) {
    throw Error(ExitCode::out_of_memory, "no memory for a HEIC decoder");
  }
  if (error.code == heif_error_Unsupported_filetype || error.code == heif_error_Unsupported_feature) {
    throw BadImage(fmt::format("is a HEIC file that libheif does not read: {}", error.message));
  }
  throw BadImage(fmt::format("is a damaged HEIC file: {}", error.message));
}

}  // namespace

void decode_heif(std::span<const std::uint8_t> file, const RasterRequest& request, Raster& raster) {
  const std::unique_ptr<heif_context, HeifRelease> context(heif_context_alloc());
  if (!context) throw Error(ExitCode::out_of_memory, "no memory for a HEIC decoder");
  require_heif(heif_context_read_from_memory_without_copy(context.get(), file.data(), file.size(), nullptr));
  heif_image_handle* found = nullptr;
  require_heif(heif_context_get_primary_image_handle(context.get(), &found));
  const std::unique_ptr<heif_image_handle, HeifRelease> handle(found);
  const ImageSize size{heif_image_handle_get_width(found), heif_image_handle_get_height(found)};
  begin_whole(size, request, raster);
  heif_image* decoded = nullptr;
  require_heif(heif_decode_image(found, &decoded, heif_colorspace_RGB, heif_chroma_interleaved_RGB, nullptr));
  const std::unique_ptr<heif_image, HeifRelease> image(decoded);
  int stride = 0;
  const std::uint8_t* rows = heif_image_get_plane_readonly(decoded, heif_channel_interleaved, &stride);
  if (rows == nullptr || heif_image_get_width(decoded, heif_channel_interleaved) != size.width ||
      heif_image_get_height(decoded, heif_channel_interleaved) != size.height) {
    throw BadImage("is a damaged HEIC file: its pixels are fewer than it says");
  }
  for (std::int64_t y = 0; y < size.height; ++y) {
    std::copy_n(rows + y * stride, size.width * 3, raster.pixels.data() + y * size.width * 3);
  }
}

}  // namespace ddp
