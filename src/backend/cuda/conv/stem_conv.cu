// Which convolutions the kernels of stem_conv.h take, and the forward kernel: blocks that keep the weights of up to 64
// outputs as fragments in shared memory, and iterate over bands. A warp computes 32 pixels at a time.
#include <algorithm>
#include <type_traits>

#include "backend/arithmetic.h"
#include "backend/cuda/conv/stem_conv.h"
#include "backend/cuda/conv/stem_tile.cuh"

namespace ddp::cuda {
namespace {

constexpr std::int64_t kMostStemChannels = 4;
constexpr std::int64_t kMostStemOutputs = 128;
constexpr std::int64_t kMostStemWindow = 11;
constexpr std::int64_t kMostStemStride = 4;

constexpr unsigned kStemWarps = 4;
constexpr unsigned kStemBlocks = 4;  // that fit on a multiprocessor
constexpr unsigned kPixelTiles = 2;  // of 16 pixels
constexpr unsigned kWarpPixels = 16 * kPixelTiles;
constexpr std::uint32_t kBandPixels = 512;
constexpr std::uint32_t kMultiprocessors = 132;  // of an H100

struct StemProduct {
  StemImage image;
  std::uint32_t steps;          // of two units
  std::uint32_t groups, tiles;  // of 8 outputs
  std::uint32_t warps;

  __host__ __device__ std::uint32_t weight_units() const { return steps * tiles * 16; }
};

struct StemResult {
  const float* bias;
  __nv_bfloat16* y;
  bool relu;
};

// Without bands if not even one line fits.
StemProduct plan_forward(const ConvSpec& spec) {
  StemProduct p{};
  p.image = image_of(spec);
  p.steps = (p.image.units() + 1) / 2;
  const std::uint32_t all = (p.image.outputs + 7) / 8;
  for (p.tiles = all > 4 ? 8 : all > 2 ? 4 : all; p.tiles > 0; p.tiles /= 2) {
    if (p.weight_units() >= kStemUnits) continue;
    divide_into_bands(p.image, kBandPixels, kStemUnits - p.weight_units(),
                      [](const StemImage& s) { return s.tile_units(); });
    if (p.image.bands > 0) break;
  }
  if (p.image.bands == 0) return p;
  p.groups = (all + p.tiles - 1) / p.tiles;
  const std::uint32_t parts = (p.image.pixels() + kWarpPixels - 1) / kWarpPixels;
  const std::uint32_t rounds = (parts + kStemWarps - 1) / kStemWarps;
  p.warps = (parts + rounds - 1) / rounds;
  return p;
}

// The outputs of a lane in up to four tiles are adjacent, so that it writes them at once: a pair of each tile.
template <unsigned kTiles>
struct StemOutputs {
  static constexpr unsigned kJoined = kTiles < 4 ? kTiles : 4;
  static constexpr unsigned kWidth = 2 * kJoined;

  // Output `which` (0 or 1) of lanes with `pair` in tile j.
  static __device__ std::uint32_t of(std::uint32_t group, unsigned j, unsigned pair, unsigned which) {
    return group * kTiles * 8 + j / kJoined * 8 * kJoined + pair * kWidth + j % kJoined * 2 + which;
  }
};

// The weights of a group of outputs as Note [Fragments] has them, [step][tile][lane][4].
template <unsigned kTiles>
__device__ inline void load_weights(const StemProduct& p, const float* weights, std::uint32_t group, Unit* memory) {
  using Four = Pack<__nv_bfloat16, 4>;
  const StemImage& s = p.image;
  const StemWeights places(s);
  const unsigned lane = threadIdx.x % 32;
#pragma unroll 4
  for (std::uint32_t i = threadIdx.x / 32; i < p.steps * kTiles; i += blockDim.x / 32) {
    const std::uint32_t output = StemOutputs<kTiles>::of(group, i % kTiles, lane / 8, lane / 4 % 2);
    float values[4];
    for (unsigned element = 0; element < 4; ++element) {
      const StemWeights::Place place = places.place(s, i / kTiles * 2 + element / 2, lane % 4 * 2 + element % 2);
      const bool exists = output < s.outputs && place.exists;
      values[element] = exists ? weights[output * places.of_output(s) + place.index] : 0.0F;
    }
    put_some(reinterpret_cast<Four*>(memory)[i * 32 + lane].values, 0, values);
  }
}

// The places of the two units of a step.
struct alignas(8) StepPlaces {
  std::uint32_t unit0, unit1;
};

template <unsigned kTiles>
__device__ inline void write_stem_pixels(const StemProduct& p, const StemResult& r, std::uint32_t group,
                                         const float (&sums)[kPixelTiles][kTiles][4], std::uint32_t first,
                                         const StemBand& band) {
  using Outputs = StemOutputs<kTiles>;
  const unsigned lane = threadIdx.x % 32;
  for (unsigned joined = 0; joined < kTiles; joined += Outputs::kJoined) {
    const std::uint32_t output = Outputs::of(group, joined, lane % 4, 0);
    if (output >= p.image.outputs) continue;
    for (unsigned row = 0; row < 2 * kPixelTiles; ++row) {
      const std::uint32_t pixel = first + lane / 4 + 8 * row;
      if (pixel >= band.pixels) continue;
      float values[Outputs::kWidth];
      for (unsigned i = 0; i < Outputs::kWidth; ++i) {
        float value = sums[row / 2][joined + i / 2][row % 2 * 2 + i % 2];
        if (r.bias != nullptr) value += r.bias[output + i];
        values[i] = r.relu ? relu(value) : value;
      }
      put_some(r.y, (band.first_pixel(p.image) + pixel) * p.image.outputs + output, values);
    }
  }
}

// The warps' shares of a band.
template <unsigned kTiles>
__device__ inline void multiply_stem_band(const StemProduct& p, const StemResult& r, std::uint32_t group,
                                          const StemBand& band, const Unit* weights, const Unit* tile,
                                          const std::uint16_t* places, const StepPlaces* steps) {
  const unsigned lane = threadIdx.x % 32;
  const uint2* fragments = reinterpret_cast<const uint2*>(weights) + lane;
  const std::byte* pairs = start_of(tile) + lane % 4 * kWordBytes;
  for (std::uint32_t first = threadIdx.x / 32 * kWarpPixels; first < band.pixels;
       first += blockDim.x / 32 * kWarpPixels) {
    const std::byte* rows[2 * kPixelTiles];
    for (unsigned row = 0; row < 2 * kPixelTiles; ++row) {
      const std::uint32_t pixel = first + lane / 4 + 8 * row;
      rows[row] = pairs + places[pixel < band.pixels ? pixel : 0];
    }
    converge();
    float sums[kPixelTiles][kTiles][4] = {};
    for (std::uint32_t step = 0; step < p.steps; ++step) {
      const auto [unit0, unit1] = steps[step];
      Matrices a[kPixelTiles];
      for (unsigned i = 0; i < kPixelTiles; ++i) {
        a[i] = {get_word(rows[2 * i] + unit0), get_word(rows[2 * i + 1] + unit0), get_word(rows[2 * i] + unit1),
                get_word(rows[2 * i + 1] + unit1)};
      }
      for (unsigned j = 0; j < kTiles; ++j) {
        const uint2 b = fragments[(step * kTiles + j) * 32];
        for (unsigned i = 0; i < kPixelTiles; ++i) multiply_add(sums[i][j], a[i], b.x, b.y);
      }
    }
    write_stem_pixels<kTiles>(p, r, group, sums, first, band);
  }
}

// Blocks of a group of outputs share the bands.
template <unsigned kTiles>
__global__ void __launch_bounds__(kStemWarps * 32, kStemBlocks)
    stem_conv_kernel(const StemProduct p, const __nv_bfloat16* x, const float* weights, const StemResult r) {
  __shared__ Unit memory[kStemUnits];
  __shared__ std::uint16_t places[kStemPixels];
  __shared__ StepPlaces steps[kMostDepth / 2];
  for (std::uint32_t i = threadIdx.x; i < p.steps; i += blockDim.x) {
    steps[i] = {p.image.place(2 * i), p.image.place(2 * i + 1)};
  }
  Unit* tile = memory + p.weight_units();
  find_places(p.image, p.image.pixels(), places);
  zero_tile(tile, p.image.tile_units());
  for (std::uint32_t index = blockIdx.x; index < p.image.all_bands(); index += gridDim.x) {
    const StemBand band(p.image, index);
    __syncthreads();
    copy_lines(p.image, x, band.sample, band.first_line(p.image), tile);
    // While the first lines arrive.
    if (index == blockIdx.x) load_weights<kTiles>(p, weights, blockIdx.y, memory);
    finish_lines(p.image, tile);
    multiply_stem_band<kTiles>(p, r, blockIdx.y, band, memory, tile, places, steps);
  }
}

template <class F>
void with_stem_tiles(std::uint32_t tiles, F f) {
  if (tiles == 1) {
    f(std::integral_constant<unsigned, 1>{});
  } else if (tiles == 2) {
    f(std::integral_constant<unsigned, 2>{});
  } else if (tiles == 4) {
    f(std::integral_constant<unsigned, 4>{});
  } else {
    f(std::integral_constant<unsigned, 8>{});
  }
}

}  // namespace

bool stem_conv_takes(const ConvSpec& s) {
  const bool small = s.input.channels <= kMostStemChannels && s.output_channels % 8 == 0 &&
                     s.output_channels <= kMostStemOutputs && s.window.height <= kMostStemWindow &&
                     s.window.width <= kMostStemWindow && s.window.stride.vertical <= kMostStemStride;
  if (!small || !s.window.plain() || s.groups != 1 || s.input_gradient || s.average_pool) return false;
  return plan_forward(s).image.bands > 0 && stem_conv_partial_sums(s) > 0;
}

void stem_conv_forward(cudaStream_t stream, const ConvSpec& spec, const StemForward& a) {
  const StemProduct p = plan_forward(spec);
  if (p.image.samples == 0) return;
  const StemResult result{a.bias, as<__nv_bfloat16>(a.y), spec.relu};
  with_stem_tiles(p.tiles, [&](auto tiles) {
    constexpr unsigned kTiles = decltype(tiles)::value;
    const std::uint32_t blocks = std::min(p.image.all_bands(), kStemBlocks * kMultiprocessors);
    launch(stream, dim3(blocks, p.groups), dim3(p.warps * 32), stem_conv_kernel<kTiles>, p, as<__nv_bfloat16>(a.x),
           a.weights, result);
  });
}

}  // namespace ddp::cuda
