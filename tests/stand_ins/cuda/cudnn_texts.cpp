// The error strings of cuDNN and cuBLAS that backend/cuda/device/check.cpp needs to link; nothing here reports such errors.
#include <cublasLt.h>
#include <cudnn.h>

extern "C" {

const char* cudnnGetErrorString(cudnnStatus_t /*status*/) { return "cuDNN is not here"; }
void cudnnGetLastErrorString(char* message, size_t size) {
  if (size > 0) message[0] = '\0';
}
const char* cublasLtGetStatusString(cublasStatus_t /*status*/) { return "cuBLAS is not here"; }

}  // extern "C"
