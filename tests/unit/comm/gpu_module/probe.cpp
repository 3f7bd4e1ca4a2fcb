// Opens the GPU module and prints its versions, or prints the error and exits with its code.
#include <cstdio>

#include "base/error.h"
#include "comm/gpu_module.h"

int main() {
  try {
    std::printf("%s\n", ddp::open_gpu_module()->versions().c_str());
    return 0;
  } catch (const ddp::Error& error) {
    std::printf("%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
