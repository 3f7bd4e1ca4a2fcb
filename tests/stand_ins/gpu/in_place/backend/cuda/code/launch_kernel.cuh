// Replaces src/backend/cuda/code/launch_kernel.cuh: kernels are compiled for the host and run there, in the order of a
// stand-in stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "backend/cuda/device/check.h"
#include "stand_ins/cuda/runtime.h"
#include "stand_ins/gpu/grid.h"

namespace ddp::cuda {

// Small, so that threads process several elements in tests too.
inline constexpr std::size_t kMostBlocks = 7;
inline constexpr std::uint32_t kMostBlocksOfTiles = 12;

struct PreviousKernel {
  void wait() const {}
};

template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(Parameters...), Arguments... arguments) {
  const std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
  testing::enqueue(stream, "kernel", [=] { stand_in::run_grid(blocks, threads, [&] { std::apply(kernel, values); }); });
}

template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(PreviousKernel, Parameters...),
            Arguments... arguments) {
  const std::tuple<PreviousKernel, Parameters...> values(PreviousKernel{}, static_cast<Parameters>(arguments)...);
  testing::enqueue(stream, "kernel", [=] { stand_in::run_grid(blocks, threads, [&] { std::apply(kernel, values); }); });
}

// Blocks run one after the other.
template <class Shared, class... Parameters, class... Arguments>
void launch_with(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
                 Arguments... arguments) {
  static_assert(sizeof(Shared) <= std::size_t{163} << 10U);
  launch(stream, blocks, threads, kernel, arguments...);
}
template <class Shared>
Shared& dynamic_shared() {
  static Shared shared;
  return shared;
}

}  // namespace ddp::cuda
