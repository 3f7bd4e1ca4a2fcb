#include "options/version.h"

#include <fmt/core.h>
#include <spdlog/version.h>
#include <xxhash.h>
#include <zlib.h>

#include <array>
#include <nlohmann/json.hpp>
#include <oneapi/dnnl/dnnl.hpp>

#include "commands/commands.h"
#include "job/mpi_session.h"
#include "onnx/file/model.h"

namespace ddp {

std::string full_version_text() {
  const dnnl_version_t* onednn = dnnl_version();
  const unsigned xxhash = XXH_versionNumber();
  const std::array<LibraryVersion, 9> libraries = {{
      mpi_version(),
      {"oneDNN", fmt::format("{}.{}.{}", onednn->major, onednn->minor, onednn->patch)},
      boost_version(),
      {"zlib", zlibVersion()},
      {"protobuf", protobuf_version()},
      {"xxHash", fmt::format("{}.{}.{}", xxhash / 10000, xxhash / 100 % 100, xxhash % 100)},
      {"nlohmann-json",
       fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
      {"spdlog", fmt::format("{}.{}.{}", SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH)},
      {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
  }};
  return version_text(libraries);
}

}  // namespace ddp
