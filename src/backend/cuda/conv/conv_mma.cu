// Which convolutions the kernels of conv_mma.h take, how the product is divided among blocks, and the forward kernel.
#include <algorithm>

#include "backend/cuda/conv/conv_mma.h"
#include "backend/cuda/conv/conv_product.cuh"

namespace ddp::cuda {
namespace {

// With more channels cuDNN's kernels are faster.
constexpr std::int64_t kMostInputs = 64;
constexpr std::int64_t kMostOutputs = 128;

// The lines per block; 0 if not even one fits.
std::uint32_t lines_that_fit(const Product& p, std::uint32_t kernel_h, bool pool) {
  const std::uint32_t line = p.taps.tile_width * p.taps.pitch;
  const std::uint32_t tile_lines = kTileUnits / line;
  if (tile_lines < kernel_h) return 0;
  const std::uint32_t most = std::min((tile_lines - kernel_h) / p.stride + 1, p.height);
  return pool ? most / 2 * 2 : most;
}

bool fits(const ConvSpec& s, std::uint32_t parts, bool data) {
  const Product p = plan_product(s, parts, data);
  // The latter for Divisor.
  return p.lines > 0 && 2 * p.steps <= kMostPlaces &&
         s.batch * p.bands.number() * p.bands.number() < std::int64_t{1} << 31;
}

// Block (sample and band, group of output channels).
template <class T, unsigned kTiles>
__global__ void __launch_bounds__(kMostWarps * 32)
    conv_mma_kernel(const PreviousKernel previous, const Product p, const Result r) {
  __shared__ Unit tile[kTileUnits];
  __shared__ std::uint16_t places[kMostPlaces];
  prepare_band(p, tile, places);
  previous.wait();
  multiply_band<T, kTiles, false>(p, r, blockIdx.x, blockIdx.y, tile, places);
}

}  // namespace

Product plan_product(const ConvSpec& s, std::uint32_t parts, bool data) {
  const Shape out = s.convolved();
  const auto u = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const Shape from = data ? out : s.input;
  const Shape to = data ? s.input : out;
  Product p{};
  const auto kind = data ? kind_of_gradient(s) : TileSource::Kind::values;
  p.source = {kind, nullptr, nullptr, nullptr, u(from.height), u(from.width), u(from.channels), parts};
  p.samples = u(s.batch);
  p.height = u(to.height);
  p.width = u(to.width);
  p.outputs = u(to.channels);
  p.stride = data ? 1 : u(s.window.stride.vertical);
  p.pad_top = static_cast<std::int32_t>(data ? s.window.height - 1 - s.window.padding.top : s.window.padding.top);
  const auto pad_left =
      static_cast<std::int32_t>(data ? s.window.width - 1 - s.window.padding.left : s.window.padding.left);
  const std::uint32_t units = units_of(from.channels);
  p.taps = {Divisor(units), Divisor(u(s.window.width)), u(s.window.height * s.window.width) * units,
            pitch_of(units * parts), (p.width - 1) * p.stride + u(s.window.width)};
  const bool cleared = from.channels % kChannelsOfUnit != 0 || kind == TileSource::Kind::relu_and_pool;
  p.grid = tile_grid(p.source, -pad_left, p.taps.tile_width, p.source.channels, units, cleared);
  const Fragments fragments = conv_mma_packed(s, parts).fragments(data);
  p.steps = fragments.steps();
  const bool pool = s.average_pool && !data;
  p.across = Divisor(pool ? p.width / 2 : p.width);
  const std::uint32_t most = lines_that_fit(p, u(s.window.height), pool);
  if (most > 0) {
    p.bands = Divisor((p.height + most - 1) / most);
    p.lines = (p.height + p.bands.number() - 1) / p.bands.number();
    if (pool) p.lines += p.lines % 2;
    p.tile_lines = (p.lines - 1) * p.stride + u(s.window.height);
  }
  p.tiles = fragments.tiles();
  p.groups = fragments.groups();
  return p;
}

bool conv_mma_takes(const ConvSpec& spec, std::uint32_t parts) {
  if (!spec.window.plain() || spec.groups != 1 || spec.input.channels > kMostInputs ||
      spec.output_channels > kMostOutputs)
    return false;
  if (!fits(spec, parts, false) || conv_mma_partial_sums(spec, parts) == 0) return false;
  if (!spec.input_gradient) return true;
  const bool turns = spec.window.stride == 1 &&
                     std::max(spec.window.padding.top, spec.window.padding.bottom) < spec.window.height &&
                     std::max(spec.window.padding.left, spec.window.padding.right) < spec.window.width;
  return turns && fits(spec, parts, true);
}

PackedShape conv_mma_packed(const ConvSpec& spec, std::uint32_t parts) {
  return {spec.output_channels, spec.input.channels, spec.window.height * spec.window.width,
          spec.input_gradient ? PackedForm::fragments_twice : PackedForm::fragments, parts};
}

void conv_mma_forward(cudaStream_t stream, const ConvSpec& spec, std::uint32_t parts, const ConvMmaForward& a) {
  Product product = plan_product(spec, parts, false);
  product.source.values = a.x;
  if (product.samples == 0) return;
  const Result result{as<uint2>(a.packed), a.bias, a.y, a.open, spec.relu, spec.average_pool, false};
  const std::uint32_t rows = (product.lines * product.width + kRowsOfTile - 1) / kRowsOfTile;
  const std::uint32_t rounds = (rows + kMostWarps - 1) / kMostWarps;
  const dim3 blocks(product.all_bands(), product.groups);
  const dim3 threads((rows + rounds - 1) / rounds * 32);
  with_tiles(product.tiles, [&](auto tiles) {
    constexpr unsigned kTiles = decltype(tiles)::value;
    const auto kernel = parts == 1 ? conv_mma_kernel<__nv_bfloat16, kTiles> : conv_mma_kernel<float, kTiles>;
    launch(stream, blocks, threads, kernel, product, result);
  });
}

}  // namespace ddp::cuda
