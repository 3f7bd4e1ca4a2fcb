// Normalisation within each sample: y = weight * (x - mean) / sqrt(variance + epsilon) + bias, where mean and variance
// (divided by the number of values) are those of a set of the sample's values.
//
//   SampleNormSpec layer{.batch = 64, .shape = {96, 56, 56}, .over = NormOver::channels, .epsilon = 1e-6F};
//   SampleNormSpec group{.batch = 64, .shape = {64, 28, 28}, .over = NormOver::groups, .groups = 32};
//
// The sets:
//   channels  all channels of a position: layer normalisation (Ba et al., 2016), as PyTorch's LayerNorm after a
//             permutation to [N, H, W, C], or of a vector
//   groups    all positions of the channels of a group, of which there are `groups`: group normalisation (Wu and He,
//             2018); with as many groups as channels, instance normalisation (Ulyanov et al., 2016)
// Weight and bias [channels]. Training and evaluation compute the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "base/types/shape.h"

namespace ddp {

enum class NormOver { channels, groups };
constexpr std::string_view to_string(NormOver over) { return over == NormOver::channels ? "channels" : "groups"; }

struct SampleNormSpec {
  static constexpr std::string_view kKind = "samplenorm";
  static constexpr bool kSimple = true;

  std::int64_t batch = 0;
  Shape shape;
  NormOver over = NormOver::channels;
  std::int64_t groups = 1;  // a divisor of the channels; 1 with NormOver::channels
  float epsilon = 1e-5F;

  constexpr std::int64_t parameter_elements(std::size_t which) const { return which < 2 ? shape.channels : 0; }
  // The number of values in a set, and of sets in a sample.
  constexpr std::int64_t set_elements() const {
    return over == NormOver::channels ? shape.channels : shape.elements() / groups;
  }
  constexpr std::int64_t sets() const { return shape.elements() / set_elements(); }
  void describe(Description& text) const { text.add("over", to_string(over)).add("groups", groups); }
  bool operator==(const SampleNormSpec&) const = default;
};

std::unique_ptr<Op> make_cpu_op(const SampleNormSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const SampleNormSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
