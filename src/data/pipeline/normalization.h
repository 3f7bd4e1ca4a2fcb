// The mean and standard deviation of a data set's pixels, for --normalize standard.
//
//   const Normalization normalization = measure_normalization(*data.train);
//   // x = (byte / 255 - normalization.mean[channel]) / normalization.deviation[channel]
#pragma once

#include <cstdint>

#include "data/images/preprocessing.h"
#include "data/sources/dataset.h"

namespace ddp {

// Reads every image once, or `samples` evenly spaced ones unless that is 0, as training reads them without augmentation, on `threads` threads. Sums are in integers,
// so the result is exact up to the final rounding.
Normalization measure_normalization(const Dataset& dataset, std::int64_t samples = 0, int threads = 1);

// The statistics of ImageNet, as expected by torchvision's models; for three channels.
Normalization imagenet_normalization();

}  // namespace ddp
