#include "job/launch/spin_limit.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "job/launch/launcher.h"

namespace ddp {
namespace {

// About a tenth of a millisecond.
constexpr const char* kRounds = "5000";

}  // namespace

void limit_openmp_spinning(char** argv) noexcept {
  try {
    const Environment environment = process_environment();
    if (environment("GOMP_SPINCOUNT") || environment("OMP_WAIT_POLICY")) return;
    std::error_code error;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
    // A dynamic linker that was started explicitly has other arguments.
    if (error || program.filename().string().starts_with("ld-") ||
        ::setenv("GOMP_SPINCOUNT", kRounds, /*replace=*/1) != 0)
      return;
    ::execv(program.c_str(), argv);
  } catch (...) {  // out of memory: it is not needed
    return;
  }
}

}  // namespace ddp
