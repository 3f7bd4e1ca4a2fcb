// Reorders and converts weights [K][C][taps] and their gradients; see packing.cuh.
#include "backend/cuda/conv/packing.cuh"

namespace ddp::cuda {
namespace {

// Calls use(i, load(i)) for the thread's share of 0 to count - 1, with several loads in flight.
template <class Load, class Use>
__device__ inline void each_of_block(std::uint32_t count, Load load, Use use) {
  constexpr unsigned kAtOnce = 6;
  for (std::uint32_t first = threadIdx.x; first < count; first += kAtOnce * kThreads) {
    decltype(load(first)) loaded[kAtOnce];
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (first + k * kThreads < count) loaded[k] = load(first + k * kThreads);
    }
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (first + k * kThreads < count) use(first + k * kThreads, loaded[k]);
    }
  }
}

// From the packed side to shared memory, kWidth channels at once.
template <unsigned kWidth, class T>
__device__ inline void get_tile(const PackedTile& tile, const T* packed, float* values) {
  struct Place {
    std::uint32_t tap, channel;
  };
  const auto place = [&](std::uint32_t i) {
    const std::uint32_t tap = tile.vectors.quotient(i);
    return Place{tap, tile.vectors.remainder(i, tap) * kWidth};
  };
  const auto load = [&](std::uint32_t i) {
    const Place at = place(i);
    return get_pack<kWidth>(packed, tile.packed + static_cast<std::size_t>(at.tap) * tile.step + at.channel);
  };
  each_of_block(tile.vectors.number() * tile.taps, load, [&](std::uint32_t i, const Pack<T, kWidth>& pack) {
    const Place at = place(i);
    float some[kWidth];
    unpack(pack, some);
    for (unsigned j = 0; j < kWidth; ++j) values[(at.channel + j) * tile.taps + at.tap] = some[j];
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const PreviousKernel previous, const __grid_constant__ PackedTensors<const float, T> tensors) {
  previous.wait();
  pack_of_block(tensors);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const PreviousKernel previous, const __grid_constant__ PackedTensors<float, const T> tensors) {
  previous.wait();
  __shared__ float values[kTileWeights];
  std::uint32_t block = 0;
  const PackedTensor<float, const T>& tensor = tensors.of_block(block);
  const PackedTile tile(tensor, block);
  if (tensor.even) {
    get_tile<2>(tile, tensor.packed, values);
  } else {
    get_tile<1>(tile, tensor.packed, values);
  }
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < tile.channels * tile.taps; i += kThreads) {
    tensor.plain[tile.plain + i] = values[i];
  }
}

// Launches the kernel for the tensors whose taps fit into a tile, and calls `move` for each of the others.
template <class Plain, class Packed, class Move>
void convert_all(cudaStream_t stream, std::span<const WeightPacking> all,
                 void (*kernel)(PreviousKernel, const PackedTensors<Plain, Packed>), Move move) {
  PackedLaunch<Plain, Packed> some;
  const auto launch_them = [&] {
    if (some.count > 0) launch(stream, some.blocks, kThreads, kernel, some.tensors);
    some.count = some.blocks = 0;
  };
  for (const WeightPacking& w : all) {
    if (w.shape.weights() == 0) continue;
    if (!takes_taps(w.shape)) {
      move(w);
      continue;
    }
    some.add(w);
    if (some.count == kPackedAtOnce) launch_them();
  }
  launch_them();
}

// Element by element, for filters with thousands of taps. Returns the offset in [K][C][taps] of the packed element
// `index`.
__device__ std::uint32_t plain_index(std::uint32_t index, std::uint32_t channels, std::uint32_t taps) {
  const std::uint32_t channel = index % channels;
  const std::uint32_t tap = index / channels % taps;
  const std::uint32_t output = index / channels / taps;
  return (output * channels + channel) * taps + tap;
}

template <class From, class To>
__global__ void move_kernel(const From* from, To* to, std::uint32_t count, std::uint32_t channels, std::uint32_t taps,
                            bool pack) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const std::uint32_t plain = plain_index(static_cast<std::uint32_t>(i), channels, taps);
    put(to, pack ? i : plain, get(from, pack ? plain : i));
  }
}

template <class From, class To>
void move(cudaStream_t stream, const WeightPacking& w, const void* from, void* to, bool pack) {
  const auto number = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  launch(stream, blocks_for(static_cast<std::size_t>(w.shape.weights())), kThreads, move_kernel<From, To>,
         as<From>(from), as<To>(to), number(w.shape.weights()), number(w.shape.channels), number(w.shape.taps), pack);
}

}  // namespace

void pack_weights(cudaStream_t stream, Element element, std::span<const WeightPacking> all) {
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    convert_all(stream, all, pack_kernel<T>,
                [&](const WeightPacking& w) { move<float, T>(stream, w, w.plain, w.packed, true); });
  });
}

void unpack_weights(cudaStream_t stream, Element element, std::span<const WeightPacking> all) {
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    convert_all(stream, all, unpack_kernel<T>,
                [&](const WeightPacking& w) { move<T, float>(stream, w, w.packed, w.plain, false); });
  });
}

void pack_weights(cudaStream_t stream, const float* weights, Element element, void* packed, const PackedShape& shape) {
  // Only read.
  const WeightPacking one{const_cast<float*>(weights), static_cast<std::byte*>(packed), shape};
  pack_weights(stream, element, {&one, 1});
}

void unpack_weights(cudaStream_t stream, Element element, const void* packed, float* weights,
                    const PackedShape& shape) {
  const WeightPacking one{weights, static_cast<std::byte*>(const_cast<void*>(packed)), shape};
  unpack_weights(stream, element, {&one, 1});
}

}  // namespace ddp::cuda
