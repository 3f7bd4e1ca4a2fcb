// Weights in the order and the element type in which kernels read them.
//
//   const std::vector<WeightPacking> all = {{device_floats, workspace, {64, 3, 49}}};
//   backend.math().convert_weights(all, PackingDirection::pack);    // converts [64][3][49] of fp32 to [64][49][3] of activations
//   backend.math().convert_weights(all, PackingDirection::unpack);  // and a packed gradient back
//
// The weights of all operators are converted by few kernels: one for each operator would take longer to start than to run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types/host_device.h"

namespace ddp {

enum class PackedForm : std::uint8_t {
  rows,             // [outputs][taps][channels]; the gradient has this form too
  weight_rows,      // the same, with a plain gradient
  fragments,        // Fragments of each part, with a plain gradient
  fragments_twice,  // behind these, Fragments of the product that computes the input's gradient
};

// The right factor of a product on tensor cores, as the lanes of a warp read it (Note [Fragments] in
// backend/cuda/code/warp_matrix.cuh): [group][step][tile][lane][4]. A unit of its depth is 8 channels of one tap, a step two
// units, a tile 8 outputs.
struct Fragments {
  std::uint32_t depth = 0;  // channels
  std::uint32_t taps = 0;
  std::uint32_t outputs = 0;

  static constexpr std::uint32_t kMostTiles = 8;

  DDP_HOST_DEVICE constexpr std::uint32_t units() const { return (depth + 7) / 8; }
  DDP_HOST_DEVICE constexpr std::uint32_t steps() const { return (taps * units() + 1) / 2; }
  // Tiles of a group. More than kMostTiles are several groups; a warp computes all tiles of one at once.
  DDP_HOST_DEVICE constexpr std::uint32_t tiles() const {
    const std::uint32_t all = (outputs + 7) / 8;
    return all <= 1 ? 1 : all <= 2 ? 2 : all <= 3 ? 3 : all <= 4 ? 4 : all <= 7 ? 7 : kMostTiles;
  }
  DDP_HOST_DEVICE constexpr std::uint32_t groups() const { return ((outputs + 7) / 8 + tiles() - 1) / tiles(); }
  DDP_HOST_DEVICE constexpr std::int64_t elements() const { return std::int64_t{128} * groups() * steps() * tiles(); }
};

// [outputs][channels][taps] in PyTorch's layout.
struct PackedShape {
  std::int64_t outputs = 0;
  std::int64_t channels = 0;
  std::int64_t taps = 0;
  PackedForm form = PackedForm::rows;
  std::int64_t parts = 1;  // of fragments, into which weights are divided if activations are fp32

  std::int64_t weights() const { return outputs * channels * taps; }
  bool has_fragments() const { return form == PackedForm::fragments || form == PackedForm::fragments_twice; }
  bool packs_gradient() const { return form == PackedForm::rows; }
  // Fragments for the result, or for the input's gradient.
  Fragments fragments(bool of_input) const {
    const auto number = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
    return {number(of_input ? outputs : channels), number(taps), number(of_input ? channels : outputs)};
  }
  // Values of a part of the fragments.
  std::int64_t fragment_values() const {
    return fragments(false).elements() + (form == PackedForm::fragments_twice ? fragments(true).elements() : 0);
  }
  // Size of the packed weights, in elements of activations: two values of a part are as large as one of fp32.
  std::int64_t elements() const {
    if (!has_fragments()) return weights();
    return parts == 1 ? fragment_values() : fragment_values() * parts / 2;
  }
};

enum class PackingDirection { pack, unpack };

struct WeightPacking {
  float* plain = nullptr;  // only read if it is packed
  std::byte* packed = nullptr;
  PackedShape shape;
};

}  // namespace ddp
