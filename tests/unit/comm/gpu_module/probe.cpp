// Opens the module for GPUs and prints its versions, or the error, whose exit code it takes.
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
