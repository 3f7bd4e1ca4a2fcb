// What computes a direction of a convolution in lanes16.
//
//   LanesConvTiles tiles = lanes_fixed_tiles(spec);
//   tiles.forward = {.method = ConvTile::Method::winograd, .index = 3, .form = 1};
#pragma once

#include <cstdint>
#include <optional>

#include "backend/cpu/conv/tiles/conv_kernels.h"
#include "backend/op.h"

namespace ddp {

// The tile of a convolution forward, and of its data gradient.
struct ConvTile {
  enum class Method { direct, winograd, amx };
  Method method = Method::direct;
  // In ConvKernels::forward, and in WinogradProductKernels for the products of Winograd's algorithm; with AMX in AmxKernels::forward.
  int index = 0;
  int form = 0;  // of Winograd's algorithm (WinogradForms)

  bool operator==(const ConvTile&) const = default;
};

// The tile of its weight gradient.
struct WeightTile {
  enum class Method { direct, outer, winograd, amx };
  Method method = Method::direct;
  // In GradientKernels::weights; of an outer tile, also of the products of Winograd's algorithm, in GradientKernels::outer; with AMX in
  // AmxKernels::gradient.
  int index = 0;
  int form = 0;

  bool operator==(const WeightTile&) const = default;
};

struct LanesConvTiles {
  ConvTile forward;
  std::optional<ConvTile> data;  // none without a data gradient
  WeightTile weights;
};

inline bool is_winograd(const ConvTile& tile) { return tile.method == ConvTile::Method::winograd; }
inline bool is_winograd(const WeightTile& tile) { return tile.method == WeightTile::Method::winograd; }
inline bool is_amx(const ConvTile& tile) { return tile.method == ConvTile::Method::amx; }
inline bool is_amx(const WeightTile& tile) { return tile.method == WeightTile::Method::amx; }
template <class Tile>
bool is_winograd(const std::optional<Tile>& tile) {
  return tile.has_value() && is_winograd(*tile);
}
template <class Tile>
bool is_amx(const std::optional<Tile>& tile) {
  return tile.has_value() && is_amx(*tile);
}

// The kernel for products of floats or of pairs of bf16 numbers.
inline const lanes::ForwardTile& forward_tile(int index, bool pairs) {
  return (pairs ? lanes::pair_kernels() : lanes::conv_kernels()).forward[index];
}
inline const lanes::OuterTile& outer_tile(int index) { return lanes::gradient_kernels().outer[index]; }

// The kernel of a tile for a stride; null if there is none.
inline lanes::ConvForward forward_kernel(const lanes::ForwardTile& tile, int stride, bool pooled = false) {
  if (pooled) return stride == 1 ? tile.pooled : nullptr;
  return tile.direct[stride < 3 ? stride - 1 : 2];
}

// The operation that forward kernels apply to results before writing them.
inline lanes::Epilogue epilogue_of(const ConvSpec& spec) {
  if (spec.average_pool) return lanes::Epilogue::relu_pool;
  return spec.relu ? lanes::Epilogue::relu : lanes::Epilogue::none;
}

}  // namespace ddp
