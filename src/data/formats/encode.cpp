#include "data/formats/encode.h"

#include <cstddef>
#include <cstdio>
// jpeglib.h requires <cstdio>.
#include <jpeglib.h>
#include <png.h>

#include <cstdlib>

#include "base/error.h"

namespace ddp {

std::string encode_jpeg(const RasterView& picture, int quality) {
  DDP_ASSERT(picture.channels == 1 || picture.channels == 3);
  jpeg_compress_struct state{};
  // The default handler ends the process; there is nothing to go wrong but memory, for which it does so too.
  jpeg_error_mgr errors{};
  state.err = jpeg_std_error(&errors);
  jpeg_create_compress(&state);
  unsigned char* data = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&state, &data, &bytes);
  state.image_width = static_cast<JDIMENSION>(picture.width);
  state.image_height = static_cast<JDIMENSION>(picture.height);
  state.input_components = static_cast<int>(picture.channels);
  state.in_color_space = picture.channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_set_defaults(&state);
  jpeg_set_quality(&state, quality, TRUE);
  jpeg_start_compress(&state, TRUE);
  while (state.next_scanline < state.image_height) {
    // libjpeg does not write to it.
    auto* row = const_cast<JSAMPLE*>(picture.pixels +
                                     static_cast<std::int64_t>(state.next_scanline) * picture.width * picture.channels);
    jpeg_write_scanlines(&state, &row, 1);
  }
  jpeg_finish_compress(&state);
  std::string file(reinterpret_cast<const char*>(data), bytes);
  jpeg_destroy_compress(&state);
  std::free(data);
  return file;
}

std::string encode_png(const RasterView& picture) {
  DDP_ASSERT(picture.channels == 1 || picture.channels == 3);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = picture.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  std::string file(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t bytes = file.size();
  check(png_image_write_to_memory(&image, file.data(), &bytes, 0, picture.pixels, 0, nullptr) != 0, ExitCode::internal,
        "libpng cannot write a picture of {}x{}: {}", picture.width, picture.height, image.message);
  file.resize(bytes);
  return file;
}

}  // namespace ddp
