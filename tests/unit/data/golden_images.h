// The folder of image files with known pixels (tests/golden/make_images.py).
#pragma once

#include <filesystem>

namespace ddp {

inline const std::filesystem::path kGoldenImages =
    std::filesystem::path(DDP_SOURCE_DIR) / "tests" / "golden" / "images";

}  // namespace ddp
