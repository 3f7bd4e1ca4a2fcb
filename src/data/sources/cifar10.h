// CIFAR-10 in its binary form: 60,000 colour images of 32x32 pixels in ten classes.
//
//   Cifar10Source source{.folders = {"data/cifar-10-batches-bin", "data"}, .split = Split::train};
//   std::unique_ptr<Dataset> train = open_cifar10(source);
//
// The format (A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009): data_batch_1.bin to
// data_batch_5.bin for training and test_batch.bin hold records of 3073 bytes: the label, then the red, green and blue
// planes of 32x32 pixels. The files may be gzipped one by one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "data/sources/dataset.h"

namespace ddp {

struct Cifar10Source {
  std::vector<std::filesystem::path>
      folders;                     // searched in this order; the first that contains any of the files is used
  std::filesystem::path data_dir;  // for the launch/get-data command in messages
  Split split = Split::train;
  std::int64_t limit = 0;  // 0: all samples
};

// Throws Error(data) naming the file if one is missing, is empty, has a size that is not a multiple of the record size,
// or has a label above 9. Files beyond the limit are not read.
std::unique_ptr<Dataset> open_cifar10(const Cifar10Source& source);

}  // namespace ddp
