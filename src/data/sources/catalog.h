// The data sets by name.
//
//   DataSets data = open_dataset("mnist", /*data_dir=*/"data", /*train_limit=*/1000, /*test_limit=*/0, /*threads=*/2);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/images/preprocessing.h"
#include "data/index/folder_listing.h"
#include "data/sources/dataset.h"
#include "data/sources/shard_sets.h"

namespace ddp {

// Settings for image folders and shards.
struct FolderOptions {
  Preprocessing preprocessing = {};  // its shape is that of synthetic images, too
  std::int64_t max_bad_samples = 0;
  std::string image_cache = "off";  // a folder, or "off"
  FolderRules rules = {};
  // For an evaluation: the classes of the checkpoint, in any bytes. Then there need be no folder `train`.
  std::vector<std::string> classes = {};
  std::string labels = {};        // a list of images (data/index/labels.h); empty: one folder per class
  std::string group_column = {};  // of the list
  // Which files of an undivided folder or list evaluate (choose_parts()), and by which rule, for the header.
  std::string parts = {};
  std::string split = {};
  // Shards, and where their pictures are.
  ShardSettings shards = {};
  ShardIndexes indexes = {};
  bool looks_for_copies = false;  // of pictures that evaluate, among those that train
};

// The names that open_dataset() accepts.
std::vector<std::string> dataset_names();

// Opens the data set `name`, with the first `train_limit` training and `test_limit` test samples only (0: all), using
// up to `threads` threads; for an image folder, the samples are taken from the classes in turn. Files are searched in
// DATA_DIR/NAME, then in DATA_DIR itself. Throws Error(usage) for an unknown name and Error(data) if files are missing
// or damaged.
DataSets open_dataset(const std::string& name, const std::string& data_dir, std::int64_t train_limit,
                      std::int64_t test_limit, int threads, const FolderOptions& folder = {});

// The first `samples` training images and a test image, for commands that work with any pixels: random pixels if the
// files of a data set with a fixed image shape cannot be read.
DataSets open_sample(const std::string& name, const std::string& data_dir, std::int64_t samples, int threads,
                     const FolderOptions& folder = {});

}  // namespace ddp
