// The lanes16 kernels for baseline; CMake compiles this file with that instruction set.
#define LANES_NAMESPACE baseline
#define LANES_NAME "baseline"
#define LANES_WIDTH 4
#define LANES_REGISTERS 16
#include "backend/cpu/lanes_kernels.inc"
