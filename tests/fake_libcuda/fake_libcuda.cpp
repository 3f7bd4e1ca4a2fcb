// A stand-in for the driver's libcuda.so.1, with which cuDNN plans kernels that it compiles at run time for a GPU that
// is only described. What was compiled is accepted and dropped; there is no device, and nothing runs.
#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kNoDevice = 100;
constexpr int kVersion = 13000;
int handle = 0;  // where every library and every kernel is

}  // namespace

// CUDA's names; of the parameters only those that are used have types of their own.
FAKE_EXPORT int cuInit(unsigned /*flags*/) { return kNoDevice; }
FAKE_EXPORT int cuDriverGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
FAKE_EXPORT int cuDeviceGetCount(int* count) {
  *count = 0;
  return kSuccess;
}
FAKE_EXPORT int cuGetErrorName(int /*error*/, const char** text) {
  *text = "CUDA_ERROR_STAND_IN";
  return kSuccess;
}
FAKE_EXPORT int cuGetErrorString(int /*error*/, const char** text) {
  *text = "an error of the stand-in";
  return kSuccess;
}
FAKE_EXPORT int cuLibraryLoadData(void** library, const void* /*code*/, ...) {
  *library = &handle;
  return kSuccess;
}
FAKE_EXPORT int cuLibraryUnload(void* /*library*/) { return kSuccess; }
FAKE_EXPORT int cuLibraryGetKernel(void** kernel, void* /*library*/, const char* /*name*/) {
  *kernel = &handle;
  return kSuccess;
}
FAKE_EXPORT int cuKernelSetAttribute(int /*name*/, int /*value*/, void* /*kernel*/, int /*device*/) { return kSuccess; }
FAKE_EXPORT int cuKernelGetAttribute(int* value, int /*name*/, void* /*kernel*/, int /*device*/) {
  *value = 0;
  return kSuccess;
}

// cuDNN takes a driver without these for none.
FAKE_EXPORT int cuCtxGetCurrent() { return kNoDevice; }
FAKE_EXPORT int cuCtxGetLimit() { return kNoDevice; }
FAKE_EXPORT int cuCtxPopCurrent() { return kNoDevice; }
FAKE_EXPORT int cuCtxPushCurrent() { return kNoDevice; }
FAKE_EXPORT int cuDeviceGet() { return kNoDevice; }
FAKE_EXPORT int cuLaunchCooperativeKernel() { return kNoDevice; }
FAKE_EXPORT int cuLaunchKernel() { return kNoDevice; }
FAKE_EXPORT int cuLaunchKernelEx() { return kNoDevice; }
FAKE_EXPORT int cuLibraryLoadFromFile() { return kNoDevice; }
FAKE_EXPORT int cuLinkAddData() { return kNoDevice; }
FAKE_EXPORT int cuLinkComplete() { return kNoDevice; }
FAKE_EXPORT int cuLinkCreate() { return kNoDevice; }
FAKE_EXPORT int cuLinkDestroy() { return kNoDevice; }
FAKE_EXPORT int cuOccupancyMaxPotentialClusterSize() { return kNoDevice; }
FAKE_EXPORT int cuStreamGetCtx() { return kNoDevice; }
