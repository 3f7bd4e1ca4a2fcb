// The first operator of a network: image bytes to the first activation, y = byte * scale + shift by channel.
//
//   InputSpec spec{.batch = 64, .shape = {3, 32, 32}, .image = {3, 32, 32}, .scale = {1, 1, 1}, .shift = {0, 0, 0}};
//   const InputArguments images;
//   backend.ops().make_op(spec, Layout::nhwc, Layout::nhwc, "")->forward({.active = 50, .images = &images});
//
// It reads no activations and has no backward pass. The samples from `active` to the stored batch become zero. What a pass has to
// do before anything else is done by its kernel too: on a GPU that is one launch instead of three.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "backend/update/table_rows.h"
#include "backend/weight_packing.h"
#include "base/types/image_edit.h"
#include "base/types/shape.h"

namespace ddp {

struct InputSpec {
  static constexpr std::string_view kKind = "input";
  static constexpr bool kSimple = true;

  std::int64_t batch = 0;
  Shape shape = {};               // the upper left part of the images that the network reads
  Shape image = {};               // the stored images
  std::vector<float> scale = {};  // per channel
  std::vector<float> shift = {};  // per channel
  // For images that are edited while they are read.
  bool edits_reflect = false;           // EditRules::reflects
  std::vector<std::uint8_t> fill = {};  // per channel; empty: images are not edited

  void describe(Description& text) const {
    text.add("image_height", image.height).add("image_width", image.width).add("edits", !fill.empty());
  }
  bool operator==(const InputSpec&) const = default;
};

// ForwardArguments::images, in memory of the backend's device.
struct InputArguments {
  const std::uint8_t* pixels = nullptr;  // images [..][C][H][W]
  const std::int32_t* rows = nullptr;    // the index of each sample's image; null: the first ones in order
  const ImageEdit* edits = nullptr;      // of each sample, for InputSpec::fill; null: images are read as they are
  // What is copied before; `rows` and `edits` may be among it. The cursor stays where it is.
  TableRow step = {};
  // Packed at the same time, as FlatMath::convert_weights() does; only some backends have such weights.
  std::span<const WeightPacking> weights = {};
};

std::unique_ptr<Op> make_cpu_op(const InputSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const InputSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
