// The lanes16 kernels for baseline; CMake compiles this file with that instruction set.
#define LANES_NAMESPACE baseline
#define LANES_NAME "baseline"
#define LANES_REGISTERS 4
#include "backend/cpu/lanes_kernels.inc"
