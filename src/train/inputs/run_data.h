// The data sets of a run, augmented for training, and what is done to their images.
//
//   const RunData images = open_data(job, divide_folder(job));
//   images.sets.train->size();
//   images.preprocessing.normalization;   // of the network's input
#pragma once

#include <optional>
#include <string>

#include "data/images/preprocessing.h"
#include "data/pipeline/augmentation.h"
#include "data/sources/catalog.h"
#include "train/inputs/job.h"

namespace ddp {

struct RunData {
  DataSets sets;
  Preprocessing preprocessing;                       // of the images of `sets`
  std::optional<Augmentation> edits = std::nullopt;  // of training images, which a GPU makes; nullopt: the loader does
  bool keeps_images = false;                         // steps could read the training images from a device's memory
};

// What one rank finds out for all: how the images of an undivided folder or of a list are divided, and where those of shards
// are. Empty texts for other data sets.
struct FolderDivision {
  std::string parts = {};  // choose_parts() of data/index/split.h
  std::string rule = {};   // for the header
  std::string csv = {};    // for RUN/split.csv; on rank 0
  ShardIndexes indexes = {};
};

// Reads the ends of all images; for one rank, which tells the others. Throws Error(usage) for options of a division that do
// not fit the data, Error(data) for unreadable folders, and Error(checkpoint) if the division is not that of the checkpoint.
FolderDivision divide_folder(const Job& job);

// Throws Error(usage) for options that do not fit the images, Error(data) for files that are missing or damaged, and
// Error(checkpoint) if the images are not those of the checkpoint that is evaluated.
RunData open_data(const Job& job, const FolderDivision& division);

}  // namespace ddp
