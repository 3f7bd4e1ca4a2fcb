// The logits of a network for a few fixed images, to check that a network written to a file and read back is unchanged.
//
//   const WeightValues values{weights, running_statistics};
//   std::vector<float> logits = sample_logits(graph, values, {scale, shift});
//   double difference = relative_difference(logits, sample_logits(read_back, values, {scale, shift}));
#pragma once

#include <span>
#include <vector>

#include "model/graph.h"
#include "train/inputs/preprocessing.h"

namespace ddp {

struct WeightValues {
  std::span<const float> parameters;  // flat
  std::span<const float> statistics;  // flat
};

// For some random images, as computed in evaluation on the CPU with kernels chosen by rule.
std::vector<float> sample_logits(const Graph& graph, const WeightValues& weights, const PixelValues& pixels);

// The largest difference divided by the largest absolute value of `wanted`; infinity if sizes differ or a value is not
// finite.
double relative_difference(std::span<const float> found, std::span<const float> wanted);

}  // namespace ddp
