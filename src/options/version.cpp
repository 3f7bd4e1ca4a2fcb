#include "options/version.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/version.hpp>

namespace ddp {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

std::string program_version() { return DDP_VERSION; }

LibraryVersion boost_version() {
  return {"Boost", fmt::format("{}.{}.{}", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100)};
}

std::string version_text(std::span<const LibraryVersion> libraries) {
  std::string text = fmt::format("ddp_train {} (C++20, {})\n", program_version(), compiler());
  std::size_t width = 0;
  for (const LibraryVersion& library : libraries) width = std::max(width, library.name.size());
  for (const LibraryVersion& library : libraries) {
    text += fmt::format("  {:<{}}  {}\n", library.name, width, library.version);
  }
  return text;
}

}  // namespace ddp
