// A stand-in for the driver's libcuda.so.1, with which cuDNN can plan run-time-compiled kernels for a GPU that exists
// only as a description. Compiled code is accepted and discarded; there is no device, and nothing runs.
#define STAND_IN_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kNoDevice = 100;
constexpr int kVersion = 13000;
int handle = 0;  // the address of every library and kernel

}  // namespace

// CUDA's function names; only the parameters that are used have real types.
STAND_IN_EXPORT int cuInit(unsigned /*flags*/) { return kNoDevice; }
STAND_IN_EXPORT int cuDriverGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
STAND_IN_EXPORT int cuDeviceGetCount(int* count) {
  *count = 0;
  return kSuccess;
}
STAND_IN_EXPORT int cuGetErrorName(int /*error*/, const char** text) {
  *text = "CUDA_ERROR_STAND_IN";
  return kSuccess;
}
STAND_IN_EXPORT int cuGetErrorString(int /*error*/, const char** text) {
  *text = "an error of the stand-in";
  return kSuccess;
}
STAND_IN_EXPORT int cuLibraryLoadData(void** library, const void* /*code*/, ...) {
  *library = &handle;
  return kSuccess;
}
STAND_IN_EXPORT int cuLibraryUnload(void* /*library*/) { return kSuccess; }
STAND_IN_EXPORT int cuLibraryGetKernel(void** kernel, void* /*library*/, const char* /*name*/) {
  *kernel = &handle;
  return kSuccess;
}
STAND_IN_EXPORT int cuKernelSetAttribute(int /*name*/, int /*value*/, void* /*kernel*/, int /*device*/) {
  return kSuccess;
}
STAND_IN_EXPORT int cuKernelGetAttribute(int* value, int /*name*/, void* /*kernel*/, int /*device*/) {
  *value = 0;
  return kSuccess;
}

// Never called, but without these symbols cuDNN reports that there is no driver.
STAND_IN_EXPORT int cuCtxGetCurrent() { return kNoDevice; }
STAND_IN_EXPORT int cuCtxGetLimit() { return kNoDevice; }
STAND_IN_EXPORT int cuCtxPopCurrent() { return kNoDevice; }
STAND_IN_EXPORT int cuCtxPushCurrent() { return kNoDevice; }
STAND_IN_EXPORT int cuDeviceGet() { return kNoDevice; }
STAND_IN_EXPORT int cuLaunchCooperativeKernel() { return kNoDevice; }
STAND_IN_EXPORT int cuLaunchKernel() { return kNoDevice; }
STAND_IN_EXPORT int cuLaunchKernelEx() { return kNoDevice; }
STAND_IN_EXPORT int cuLibraryLoadFromFile() { return kNoDevice; }
STAND_IN_EXPORT int cuLinkAddData() { return kNoDevice; }
STAND_IN_EXPORT int cuLinkComplete() { return kNoDevice; }
STAND_IN_EXPORT int cuLinkCreate() { return kNoDevice; }
STAND_IN_EXPORT int cuLinkDestroy() { return kNoDevice; }
STAND_IN_EXPORT int cuOccupancyMaxPotentialClusterSize() { return kNoDevice; }
STAND_IN_EXPORT int cuStreamGetCtx() { return kNoDevice; }
