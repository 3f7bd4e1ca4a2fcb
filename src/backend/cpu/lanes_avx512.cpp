// The lanes16 kernels for avx512; CMake compiles this file with that instruction set.
#define LANES_NAMESPACE avx512
#define LANES_NAME "avx512"
#define LANES_WIDTH 16
#define LANES_REGISTERS 32
#include "backend/cpu/lanes_kernels.inc"
