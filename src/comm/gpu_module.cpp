#include "comm/gpu_module.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/file.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModuleName = "libddp_cuda.so";
constexpr const char* kDriverName = "libcuda.so.1";
constexpr const char* kPathVariable = "DDP_CUDA_MODULE";

// In the place given by the user, beside the program as built, or in the place of installation.
fs::path find_module() {
  std::error_code error;
  const char* named = std::getenv(kPathVariable);
  if (named != nullptr && *named != '\0') {
    check(fs::exists(named, error), ExitCode::preflight, "{} does not exist, but {} names it as the GPU module", named,
          kPathVariable);
    return named;
  }
  const fs::path program = program_path();
  fs::path beside = program.parent_path() / kModuleName;
  fs::path installed = program.parent_path().parent_path() / "lib" / "ddp_train" / kModuleName;
  if (fs::exists(beside, error)) return beside;
  if (fs::exists(installed, error)) return installed;
  throw Error(ExitCode::preflight,
              fmt::format("this program has no GPU module; neither {} nor {} exists: build it where CUDA, cuDNN "
                          "and NCCL are installed (cmake -DDDP_CUDA=ON reports what is missing), or name it in {}",
                          beside.string(), installed.string(), kPathVariable));
}

// Checked before the module is loaded, because its libraries take about 100 MB per process, which a machine without a
// driver can save.
void check_driver() {
  void* const driver = dlopen(kDriverName, RTLD_LAZY | RTLD_LOCAL);
  check(driver != nullptr, ExitCode::preflight,
        "there is no NVIDIA driver ({} cannot be loaded); install one, or in a container start it with its GPUs "
        "(docker run --gpus all)",
        kDriverName);
}

// The dynamic linker's message about its last error.
std::string linker_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown reason" : text;
}

std::shared_ptr<GpuModule> open_module(const std::string& path) {
  // RTLD_LOCAL keeps its symbols private, and it is never unloaded, because CUDA's libraries have threads and
  // destructors that cannot be.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  check(library != nullptr, ExitCode::preflight,
        "the GPU module cannot be loaded: {}; install what is missing, or name its folder in LD_LIBRARY_PATH",
        linker_error());
  void* const entry = dlsym(library, kGpuModuleEntry);
  check(entry != nullptr, ExitCode::preflight, "{} is not a GPU module of this program: it has no {}", path,
        kGpuModuleEntry);
  GpuModule* const module = reinterpret_cast<DdpOpenGpuModule>(entry)(DDP_VERSION);
  check(module != nullptr, ExitCode::preflight,
        "{} belongs to a different version than this program, {}; build or install both together", path, DDP_VERSION);
  return std::shared_ptr<GpuModule>(module);
}

}  // namespace

std::shared_ptr<GpuModule> open_gpu_module() {
  const std::string path = find_module().string();
  // A module named by the user is loaded even without a driver; it reports its own errors.
  if (std::getenv(kPathVariable) == nullptr) check_driver();
  return open_module(path);
}

std::shared_ptr<GpuModule> open_gpu_module_without_driver() { return open_module(find_module().string()); }

}  // namespace ddp
