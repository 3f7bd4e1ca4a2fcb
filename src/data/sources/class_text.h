// What the header of a run says of the classes of its training data.
//
//   const DataSets data = open_dataset("folder", "photos", 0, 0, /*threads=*/2);
//   class_text(*data.train);   // "3: cat 4,000, dog 3,990, bird 120 images"
#pragma once

#include <string>

#include "data/sources/dataset.h"

namespace ddp {

// The number of classes, with the images of the first ones and of the smallest and the largest.
std::string class_text(const Dataset& data);

}  // namespace ddp
