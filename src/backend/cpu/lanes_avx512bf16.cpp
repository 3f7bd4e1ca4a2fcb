// The lanes16 kernels for AVX-512 with bf16 instructions; CMake compiles this file with these instruction sets.
#define LANES_NAMESPACE avx512bf16
#define LANES_NAME "avx512"
#define LANES_WIDTH 16
#define LANES_REGISTERS 32
#include "backend/cpu/lanes_kernels.inc"
