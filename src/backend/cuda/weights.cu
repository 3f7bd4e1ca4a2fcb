// Reorders and converts weights [K][C][taps] through shared memory, so that both sides are accessed contiguously.
// Fragments are gathered.
#include <algorithm>

#include "backend/cuda/kernels.h"
#include "backend/cuda/vector.cuh"

namespace ddp::cuda {
namespace {

// Weights of a tile: some channels of one output channel, with all taps. A convolution with more taps than this is
// copied tap by tap.
constexpr std::uint32_t kTileWeights = 4608;
// Weights of a block that gathers.
constexpr std::uint32_t kGathered = 512;

// A tensor of weights, and the blocks that convert it.
template <class Plain, class Packed>
struct Tensor {
  Plain* plain;
  Packed* packed;
  std::uint32_t outputs, channels, taps;
  std::uint32_t tile_channels;
  std::uint32_t tiles;      // of an output channel
  std::uint32_t end_block;  // of this tensor, where those of the next one begin
  std::uint16_t products;   // of which these are the fragments; 0: it is packed by rows
  bool even;                // two channels at once
};

// The kernel's argument: in constant memory, without a copy that must be up to date.
template <class Plain, class Packed>
struct Tensors {
  Tensor<Plain, Packed> all[kPackedAtOnce];

  // Of the calling block, and its number among those of the tensor.
  __device__ const Tensor<Plain, Packed>& of_block(std::uint32_t& block) const {
    unsigned i = 0;
    while (blockIdx.x >= all[i].end_block) ++i;
    block = blockIdx.x - (i == 0 ? 0 : all[i - 1].end_block);
    return all[i];
  }
};

// The tile of this block.
struct Tile {
  std::uint32_t channels, taps;
  std::size_t plain;   // its offset in [K][C][taps], where it is contiguous
  std::size_t packed;  // the offset of its first tap in [K][taps][C]; the others follow with stride `step`
  std::uint32_t step;

  template <class Plain, class Packed>
  __device__ Tile(const Tensor<Plain, Packed>& t, std::uint32_t block) : taps(t.taps), step(t.channels) {
    const std::uint32_t output = block / t.tiles;
    const std::uint32_t first = block % t.tiles * t.tile_channels;
    channels = t.channels - first < t.tile_channels ? t.channels - first : t.tile_channels;
    plain = (static_cast<std::size_t>(output) * t.channels + first) * taps;
    packed = static_cast<std::size_t>(output) * t.channels * taps + first;
  }
};

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

// From shared memory to the packed side, kWidth channels at once.
template <unsigned kWidth, class T>
__device__ inline void put_tile(const Tile& tile, const float* values, T* packed) {
  const std::uint32_t vectors = tile.channels / kWidth;
  for (std::uint32_t i = threadIdx.x; i < vectors * tile.taps; i += kThreads) {
    const std::uint32_t tap = i / vectors;
    const std::uint32_t channel = i % vectors * kWidth;
    float some[kWidth];
    for (unsigned j = 0; j < kWidth; ++j) some[j] = values[(channel + j) * tile.taps + tap];
    put_some(packed, tile.packed + static_cast<std::size_t>(tap) * tile.step + channel, some);
  }
}

// And back.
template <unsigned kWidth, class T>
__device__ inline void get_tile(const Tile& tile, const T* packed, float* values) {
  const std::uint32_t vectors = tile.channels / kWidth;
  const auto load = [&](std::uint32_t i) {
    const std::size_t tap = i / vectors;
    return get_pack<kWidth>(packed, tile.packed + tap * tile.step + i % vectors * kWidth);
  };
  each_of_block(vectors * tile.taps, load, [&](std::uint32_t i, const Pack<T, kWidth>& pack) {
    float some[kWidth];
    unpack(pack, some);
    for (unsigned j = 0; j < kWidth; ++j) values[(i % vectors * kWidth + j) * tile.taps + i / vectors] = some[j];
  });
}

// Element `i` of the fragments of a product, from the plain weights. `turned`: of the product that computes the input's
// gradient, for which the taps are in reverse order.
__device__ inline float fragment_weight(const Fragments& f, bool turned, const float* weights, std::uint32_t i) {
  const std::uint32_t element = i % 4;
  const std::uint32_t lane = i / 4 % 32;
  const std::uint32_t tile = i / 128;
  const std::uint32_t step = tile / f.tiles() % f.steps();
  const std::uint32_t group = tile / f.tiles() / f.steps();
  const std::uint32_t output = (group * f.tiles() + tile % f.tiles()) * 8 + lane / 4;
  const std::uint32_t unit = 2 * step + element / 2;
  const std::uint32_t tap = unit / f.units();
  const std::uint32_t channel = unit % f.units() * 8 + lane % 4 * 2 + element % 2;
  if (output >= f.outputs || channel >= f.depth || tap >= f.taps) return 0.0F;
  return turned ? weights[(channel * f.outputs + output) * f.taps + f.taps - 1 - tap]
                : weights[(output * f.depth + channel) * f.taps + tap];
}

// Of the block's kGathered elements.
template <class T>
__device__ inline void gather_fragments(const Tensor<const float, T>& t, std::uint32_t block) {
  const Fragments forward{t.channels, t.taps, t.outputs};
  const Fragments turned{t.outputs, t.taps, t.channels};
  const auto first = static_cast<std::uint32_t>(forward.elements());
  const std::uint32_t count = first + (t.products == 2 ? static_cast<std::uint32_t>(turned.elements()) : 0);
  for (std::uint32_t i = block * kGathered + threadIdx.x; i < (block + 1) * kGathered && i < count; i += kThreads) {
    put(t.packed, i,
        i < first ? fragment_weight(forward, false, t.plain, i) : fragment_weight(turned, true, t.plain, i - first));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const PreviousKernel previous, const Tensors<const float, T> tensors) {
  previous.wait();
  __shared__ float values[kTileWeights];
  std::uint32_t block = 0;
  const Tensor<const float, T>& tensor = tensors.of_block(block);
  const bool gathers = tensor.products > 0;
  const Tile tile(tensor, block);
  each_of_block(
      gathers ? 0 : tile.channels * tile.taps, [&](std::uint32_t i) { return tensor.plain[tile.plain + i]; },
      [&](std::uint32_t i, float value) { values[i] = value; });
  __syncthreads();
  if (gathers) {
    gather_fragments(tensor, block);
  } else if (tensor.even) {
    put_tile<2>(tile, values, tensor.packed);
  } else {
    put_tile<1>(tile, values, tensor.packed);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const PreviousKernel previous, const Tensors<float, const T> tensors) {
  previous.wait();
  __shared__ float values[kTileWeights];
  std::uint32_t block = 0;
  const Tensor<float, const T>& tensor = tensors.of_block(block);
  const Tile tile(tensor, block);
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

// Where the order does not change, everything is one row of channels.
PackedShape simplified(const PackedShape& s) {
  return !s.has_fragments() && (s.channels == 1 || s.taps == 1) ? PackedShape{1, s.weights(), 1} : s;
}

// A tensor whose blocks begin at `first_block`.
template <class Plain, class Packed>
Tensor<Plain, Packed> tensor_of(const WeightPacking& w, std::uint32_t first_block) {
  const PackedShape shape = simplified(w.shape);
  const std::int64_t fitting = kTileWeights / shape.taps;
  const bool even = shape.channels % 2 == 0 && fitting >= 2;
  const std::int64_t tile_channels = std::min(shape.channels, even ? fitting / 2 * 2 : fitting);
  const std::int64_t tiles = (shape.channels + tile_channels - 1) / tile_channels;
  const std::int64_t blocks =
      shape.has_fragments() ? (shape.elements() + kGathered - 1) / kGathered : shape.outputs * tiles;
  return {w.plain,
          as<Packed>(static_cast<void*>(w.packed)),
          static_cast<std::uint32_t>(shape.outputs),
          static_cast<std::uint32_t>(shape.channels),
          static_cast<std::uint32_t>(shape.taps),
          static_cast<std::uint32_t>(tile_channels),
          static_cast<std::uint32_t>(tiles),
          first_block + static_cast<std::uint32_t>(blocks),
          static_cast<std::uint16_t>(shape.form == PackedForm::fragments_twice ? 2
                                     : shape.has_fragments()                   ? 1
                                                                               : 0),
          even};
}

// Launches the kernel for the tensors whose taps fit into a tile, and calls `move` for each of the others.
template <class Plain, class Packed, class Move>
void convert_all(cudaStream_t stream, std::span<const WeightPacking> all,
                 void (*kernel)(PreviousKernel, const Tensors<Plain, Packed>), Move move) {
  Tensors<Plain, Packed> tensors{};
  std::size_t count = 0;
  std::uint32_t blocks = 0;
  const auto launch_them = [&] {
    if (count > 0) launch(stream, blocks, kThreads, kernel, tensors);
    count = blocks = 0;
  };
  for (const WeightPacking& w : all) {
    if (w.shape.weights() == 0) continue;
    if (!w.shape.has_fragments() && simplified(w.shape).taps > kTileWeights) {
      move(w);
      continue;
    }
    tensors.all[count] = tensor_of<Plain, Packed>(w, blocks);
    blocks = tensors.all[count].end_block;
    if (++count == kPackedAtOnce) launch_them();
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
