// CIFAR-10 and CIFAR-100 in their binary form: 60,000 colour images of 32x32 pixels in 10 or 100 classes.
//
//   CifarSource source{.folders = {"data/cifar-10-batches-bin", "data"}, .split = Split::train};
//   std::unique_ptr<Dataset> train = open_cifar(source);
//
// The formats (A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009, and
// www.cs.toronto.edu/~kriz/cifar.html): a record is its labels, then the red, green and blue planes of 32x32 pixels.
// CIFAR-10 has one label and the files data_batch_1.bin to data_batch_5.bin for training and test_batch.bin; CIFAR-100
// has a coarse label (20 superclasses, not used) and a fine one, and the files train.bin and test.bin. The files may be
// gzipped one by one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "data/sources/dataset.h"

namespace ddp {

struct CifarSource {
  std::vector<std::filesystem::path>
      folders;                     // searched in this order; the first that contains any of the files is used
  std::filesystem::path data_dir;  // for the launch/get-data command in messages
  Split split = Split::train;
  std::int64_t limit = 0;  // 0: all samples
  int classes = 10;        // or 100
};

// Throws Error(data) naming the file if one is missing, is empty, has a size that is not a multiple of the record size,
// or has a label beyond the classes. Files beyond the limit are not read. The classes of CIFAR-100 have the names in
// fine_label_names.txt, if that is there.
std::unique_ptr<Dataset> open_cifar(const CifarSource& source);

}  // namespace ddp
