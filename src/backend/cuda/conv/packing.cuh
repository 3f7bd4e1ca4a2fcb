// The device code that packs weights [K][C][taps], for kernels that have other work too: through shared memory, so that both
// sides are accessed contiguously. Fragments are gathered.
//
//   PackedLaunch<const float, T> weights;
//   for (const WeightPacking& each : all) weights.add(each);   // kPackedAtOnce at most, of which takes_taps() holds
//   launch(stream, weights.blocks, kThreads, some_kernel<T>, weights.tensors);   // whose blocks call pack_of_block(tensors)
#pragma once

#include <algorithm>

#include "backend/cuda/code/async_copy.cuh"
#include "backend/cuda/code/divisor.cuh"
#include "backend/cuda/code/vector.cuh"
#include "backend/cuda/conv/conv.h"
#include "backend/weight_packing.h"

namespace ddp::cuda {

// Weights of a tile: some channels of one output channel, with all taps. A convolution with more taps than this is
// copied tap by tap.
inline constexpr std::uint32_t kTileWeights = 4608;

// A tensor of weights, and the blocks that convert it.
template <class Plain, class Packed>
struct PackedTensor {
  Plain* plain;
  Packed* packed;
  std::uint32_t outputs, channels, taps;
  std::uint32_t tiles;          // of an output channel; blocks of the first product's fragments
  std::uint32_t end_block;      // of this tensor, where those of the next one begin
  std::uint16_t tile_channels;  // of all tiles but the last one of an output channel
  std::uint8_t products : 4;    // of which these are the fragments; 0: it is packed by rows
  std::uint8_t parts : 4;       // of a value of fragments
  bool even;                    // two channels at once
  Divisor divisors[2];          // vectors of channels, also of the last tile; units of the depth of each product
};

// A kernel's argument: in constant memory, without a copy that must be up to date.
template <class Plain, class Packed>
struct PackedTensors {
  static_assert(sizeof(PackedTensor<Plain, Packed>[kPackedAtOnce]) <= 3840, "of 4096 bytes of all parameters");
  PackedTensor<Plain, Packed> all[kPackedAtOnce];

  // The tensor of the calling block, and the block's number among those of the tensor.
  __device__ const PackedTensor<Plain, Packed>& of_block(std::uint32_t& block) const {
    unsigned i = 0;
    while (blockIdx.x >= all[i].end_block) ++i;
    block = blockIdx.x - (i == 0 ? 0 : all[i - 1].end_block);
    return all[i];
  }
};

// The tile of a block.
struct PackedTile {
  std::uint32_t channels, taps;
  std::size_t plain;   // its offset in [K][C][taps], where it is contiguous
  std::size_t packed;  // the offset of its first tap in [K][taps][C]; the others follow with stride `step`
  std::uint32_t step;
  Divisor vectors;

  template <class Plain, class Packed>
  __device__ PackedTile(const PackedTensor<Plain, Packed>& t, std::uint32_t block) : taps(t.taps), step(t.channels) {
    std::uint32_t output = block;
    std::uint32_t tile = 0;
    if (t.tiles > 1) {
      output = block / t.tiles;
      tile = block % t.tiles;
    }
    const std::uint32_t first = tile * t.tile_channels;
    const bool last = tile + 1 == t.tiles;
    channels = last ? t.channels - first : t.tile_channels;
    vectors = t.divisors[last ? 1 : 0];
    plain = (static_cast<std::size_t>(output) * t.channels + first) * taps;
    packed = static_cast<std::size_t>(output) * t.channels * taps + first;
  }
};

// From shared memory to the packed side, kWidth channels at once.
template <unsigned kWidth, class T>
__device__ inline void put_tile(const PackedTile& tile, const float* values, T* packed) {
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < tile.vectors.number() * tile.taps; i += kThreads) {
    const std::uint32_t tap = tile.vectors.quotient(i);
    const std::uint32_t channel = tile.vectors.remainder(i, tap) * kWidth;
    float some[kWidth];
    for (unsigned j = 0; j < kWidth; ++j) some[j] = values[(channel + j) * tile.taps + tap];
    put_some(packed, tile.packed + static_cast<std::size_t>(tap) * tile.step + channel, some);
  }
}

// Fragments from the plain weights: a block has those of a step of a group, a warp those of a tile. The second product
// computes the input's gradient: outputs and channels are exchanged, and the taps are in reverse order. Each product has the
// fragments of the weights' parts one after the other (Note [Parts] of parts.h), whatever T.
static_assert(Fragments::kMostTiles * 32 <= kThreads);
template <class T>
__device__ inline void gather_fragments(const PackedTensor<const float, T>& t, std::uint32_t block) {
  const bool turned = block >= t.tiles;
  if (turned) block -= t.tiles;
  const Fragments f = turned ? Fragments{t.outputs, t.taps, t.channels} : Fragments{t.channels, t.taps, t.outputs};
  const Divisor& units = t.divisors[turned ? 1 : 0];
  const std::uint32_t tile = threadIdx.x / 32;
  const std::uint32_t lane = threadIdx.x % 32;
  const std::uint32_t tiles = f.tiles();
  if (tile >= tiles) return;
  const std::uint32_t steps = f.steps();
  const std::uint32_t group = block < steps ? 0 : block / steps;
  const std::uint32_t output = (group * tiles + tile) * 8 + lane / 4;
  const std::uint32_t output_distance = turned ? f.taps : f.depth * f.taps;
  const std::uint32_t channel_distance = turned ? f.outputs * f.taps : f.taps;
  float some[4];
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    const std::uint32_t unit = 2 * (block - group * steps) + half;
    const std::uint32_t tap = units.quotient(unit);
    const std::uint32_t channel = units.remainder(unit, tap) * 8 + lane % 4 * 2;
    const float* weights = t.plain + output * output_distance + (turned ? f.taps - 1 - tap : tap);
#pragma unroll
    for (unsigned j = 0; j < 2; ++j) {
      const bool exists = output < f.outputs && channel + j < f.depth && tap < f.taps;
      some[2 * half + j] = exists ? weights[(channel + j) * channel_distance] : 0.0F;
    }
  }
  const std::uint32_t parts = t.parts;
  auto* to = reinterpret_cast<__nv_bfloat16*>(t.packed) + (block * tiles + tile) * 128 + lane * 4;
  if (turned) to += parts * Fragments{t.channels, t.taps, t.outputs}.elements();
#pragma unroll 1
  for (std::uint32_t part = 0; part < parts; ++part) {
    Pack<__nv_bfloat16, 4> pack;
    for (unsigned j = 0; j < 4; ++j) {
      put(pack.values, j, some[j]);
      some[j] -= get(pack.values, j);
    }
    *reinterpret_cast<Pack<__nv_bfloat16, 4>*>(to) = pack;
    to += f.elements();
  }
}

// Packs what the calling block has of the tensors, one of the first blocks of its kernel.
template <class T>
__device__ inline void pack_of_block(const PackedTensors<const float, T>& tensors) {
  __shared__ float values[kTileWeights];
  std::uint32_t block = 0;
  const PackedTensor<const float, T>& tensor = tensors.of_block(block);
  const bool gathers = tensor.products > 0;
  const PackedTile tile(tensor, block);
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; !gathers && i < tile.channels * tile.taps; i += kThreads) {
    copy_async<4>(values + i, tensor.plain + tile.plain + i);
  }
  wait_for_copies();
  __syncthreads();
  if (gathers) {
    gather_fragments(tensor, block);
  } else if (tensor.even) {
    put_tile<2>(tile, values, tensor.packed);
  } else {
    put_tile<1>(tile, values, tensor.packed);
  }
}

// Where the order does not change, everything is one row of channels.
inline PackedShape simplified(const PackedShape& s) {
  return !s.has_fragments() && (s.channels == 1 || s.taps == 1) ? PackedShape{1, s.weights(), 1} : s;
}

// A tensor whose blocks begin at `first_block`.
template <class Plain, class Packed>
PackedTensor<Plain, Packed> tensor_of(const WeightPacking& w, std::uint32_t first_block) {
  const auto number = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const PackedShape shape = simplified(w.shape);
  PackedTensor<Plain, Packed> t{};
  t.plain = w.plain;
  t.packed = as<Packed>(static_cast<void*>(w.packed));
  t.outputs = number(shape.outputs);
  t.channels = number(shape.channels);
  t.taps = number(shape.taps);
  std::uint32_t blocks = 0;
  if (shape.has_fragments()) {
    t.products = shape.form == PackedForm::fragments_twice ? 2 : 1;
    t.parts = static_cast<std::uint8_t>(shape.parts & 0xF);
    for (unsigned product = 0; product < t.products; ++product) {
      const Fragments f = shape.fragments(product == 1);
      t.divisors[product] = Divisor(f.units());
      blocks += f.groups() * f.steps();
      if (product == 0) t.tiles = blocks;
    }
  } else {
    const std::int64_t fitting = kTileWeights / shape.taps;
    t.even = shape.channels % 2 == 0 && fitting >= 2;
    const std::int64_t width = t.even ? 2 : 1;
    const std::int64_t tile_channels = std::min(shape.channels, fitting / width * width);
    t.tile_channels = static_cast<std::uint16_t>(tile_channels);
    t.tiles = number((shape.channels + tile_channels - 1) / tile_channels);
    t.divisors[0] = Divisor(number(tile_channels / width));
    t.divisors[1] = Divisor(number((shape.channels - (t.tiles - 1) * tile_channels) / width));
    blocks = t.outputs * t.tiles;
  }
  t.end_block = first_block + blocks;
  return t;
}

// Whether the taps of a channel fit into a tile.
inline bool takes_taps(const PackedShape& shape) {
  return shape.has_fragments() || simplified(shape).taps <= kTileWeights;
}

// The tensors and blocks of a launch.
template <class Plain, class Packed>
struct PackedLaunch {
  PackedTensors<Plain, Packed> tensors{};
  std::size_t count = 0;
  std::uint32_t blocks = 0;

  void add(const WeightPacking& w) {
    if (w.shape.weights() == 0) return;
    tensors.all[count] = tensor_of<Plain, Packed>(w, blocks);
    blocks = tensors.all[count++].end_block;
  }
};

}  // namespace ddp::cuda
