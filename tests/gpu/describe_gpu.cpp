// Prints cuDNN's description of the first visible GPU as JSON. With it, plans for that GPU can be built and tested on a
// machine without one.
#include <cudnn.h>
#include <cudnn_backend.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace {

bool done(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return true;
  std::fprintf(stderr, "describe_gpu: %s: %s\n", call, cudnnGetErrorString(status));
  return false;
}

bool print_description(cudnnBackendDescriptor_t gpu) {
  const std::int32_t ordinal = 0;
  std::int64_t length = 0;
  if (!done(cudnnBackendSetAttribute(gpu, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &ordinal),
            "the device") ||
      !done(cudnnBackendFinalize(gpu), "cudnnBackendFinalize") ||
      !done(cudnnBackendGetAttribute(gpu, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &length,
                                     nullptr),
            "the length of the description")) {
    return false;
  }
  std::string json(static_cast<std::size_t>(length), '\0');
  if (!done(cudnnBackendGetAttribute(gpu, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, length, &length,
                                     json.data()),
            "the description")) {
    return false;
  }
  std::printf("%s\n", json.c_str());
  return true;
}

}  // namespace

int main() {
  cudnnBackendDescriptor_t gpu = nullptr;
  if (!done(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &gpu), "cudnnBackendCreateDescriptor")) {
    return 1;
  }
  const bool printed = print_description(gpu);
  return done(cudnnBackendDestroyDescriptor(gpu), "cudnnBackendDestroyDescriptor") && printed ? 0 : 1;
}
