// The mean and standard deviation of a data set's pixels, for --normalize standard.
//
//   const Normalization normalization = measure_normalization(*data.train);
//   // x = (byte / 255 - normalization.mean[channel]) / normalization.deviation[channel]
#pragma once

#include <cstdint>
#include <vector>

#include "data/sources/dataset.h"

namespace ddp {

// Per channel, with pixels counted as fractions of 255.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> deviation;  // 1 where all pixels of the channel are equal
};

// Reads every image once, or `samples` of them in equal steps where that is not 0, on `threads` threads. Sums are taken
// in integers, so the result is exact up to its last rounding.
Normalization measure_normalization(const Dataset& dataset, std::int64_t samples = 0, int threads = 1);

// Of ImageNet's training images, as torchvision's models expect them: for three channels.
Normalization imagenet_normalization();

}  // namespace ddp
