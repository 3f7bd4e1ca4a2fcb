// The data sets by name.
//
//   DataSets data = open_dataset("mnist", /*data_dir=*/"data", /*train_limit=*/1000, /*test_limit=*/0, /*threads=*/2);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/sources/dataset.h"

namespace ddp {

struct DataSets {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
};

// What applies to image folders and, of `image_size`, to synthetic images.
struct FolderOptions {
  std::int64_t image_size = 224;
  std::int64_t max_bad_samples = 0;
  std::string image_cache = "off";  // a folder, or "off"
};

// The names that open_dataset() knows.
std::vector<std::string> dataset_names();

// Opens the data set `name`, with the first `train_limit` training and `test_limit` test samples only (0: all), using
// up to `threads` threads; of an image folder, N samples are the first of each class in turn. Files are looked for in
// DATA_DIR/NAME, then in DATA_DIR itself. Throws Error(usage) for an unknown name and Error(data) where files are
// missing or damaged.
DataSets open_dataset(const std::string& name, const std::string& data_dir, std::int64_t train_limit,
                      std::int64_t test_limit, int threads, const FolderOptions& folder = {});

// The first `samples` training images and a test image, for commands to which any pixels will do: where the files of a
// data set cannot be read whose images have one shape, random pixels of that shape.
DataSets open_sample(const std::string& name, const std::string& data_dir, std::int64_t samples, int threads,
                     const FolderOptions& folder = {});

}  // namespace ddp
