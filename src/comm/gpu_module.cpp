#include "comm/gpu_module.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModuleName = "libddp_cuda.so";
constexpr const char* kDriverName = "libcuda.so.1";
constexpr const char* kPathVariable = "DDP_CUDA_MODULE";

// Where the user says, or beside the program as it is built, or where it is installed.
fs::path find_module() {
  std::error_code error;
  const char* named = std::getenv(kPathVariable);
  if (named != nullptr && *named != '\0') {
    check(fs::exists(named, error), ExitCode::preflight, "there is no {}, which {} names as the module for GPUs", named,
          kPathVariable);
    return named;
  }
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  check(!error, ExitCode::preflight,
        "cannot find the module for GPUs, because /proc/self/exe cannot be read ({}); name the module in {}",
        error.message(), kPathVariable);
  fs::path beside = program.parent_path() / kModuleName;
  fs::path installed = program.parent_path().parent_path() / "lib" / "ddp_train" / kModuleName;
  if (fs::exists(beside, error)) return beside;
  if (fs::exists(installed, error)) return installed;
  throw Error(ExitCode::preflight,
              fmt::format("this program has no module for GPUs; there is neither {} nor {}: build it where CUDA, cuDNN "
                          "and NCCL are (cmake -DDDP_CUDA=ON says what is missing), or name it in {}",
                          beside.string(), installed.string(), kPathVariable));
}

// Asked before the module is loaded: its libraries take some 100 MB of each process, which a machine without a driver
// need not pay.
void check_driver() {
  void* const driver = dlopen(kDriverName, RTLD_LAZY | RTLD_LOCAL);
  check(driver != nullptr, ExitCode::preflight,
        "there is no NVIDIA driver ({} cannot be loaded); install one, or in a container start it with its GPUs "
        "(docker run --gpus all)",
        kDriverName);
}

// The dynamic linker's complaint about its last call.
std::string linker_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown reason" : text;
}

}  // namespace

std::shared_ptr<GpuModule> open_gpu_module() {
  const std::string path = find_module().string();
  // A module that is named is loaded whatever the machine has: it may bring its own reasons.
  if (std::getenv(kPathVariable) == nullptr) check_driver();
  // Its symbols stay its own, and it stays for the life of the process: CUDA's libraries have threads and destructors
  // that cannot be unloaded.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  check(library != nullptr, ExitCode::preflight,
        "the module for GPUs cannot be loaded: {}; install what is missing, or name its folder in LD_LIBRARY_PATH",
        linker_error());
  void* const entry = dlsym(library, kGpuModuleEntry);
  check(entry != nullptr, ExitCode::preflight, "{} is not a module of this program: it has no {}", path,
        kGpuModuleEntry);
  GpuModule* const module = reinterpret_cast<DdpOpenGpuModule>(entry)(DDP_VERSION);
  check(module != nullptr, ExitCode::preflight,
        "{} belongs to another version than this program, {}; build or install the two together", path, DDP_VERSION);
  return std::shared_ptr<GpuModule>(module);
}

}  // namespace ddp
