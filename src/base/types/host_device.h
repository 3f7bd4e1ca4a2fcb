// Marks functions that CUDA's compiler builds for both the host and the device; nothing to other compilers.
#pragma once

#ifdef __CUDACC__
#define DDP_HOST_DEVICE __host__ __device__
#else
#define DDP_HOST_DEVICE
#endif
