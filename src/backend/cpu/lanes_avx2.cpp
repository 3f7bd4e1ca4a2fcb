// The lanes16 kernels for avx2; CMake compiles this file with that instruction set.
#define LANES_NAMESPACE avx2
#define LANES_NAME "avx2"
#define LANES_WIDTH 8
#define LANES_REGISTERS 16
#include "backend/cpu/lanes_kernels.inc"
