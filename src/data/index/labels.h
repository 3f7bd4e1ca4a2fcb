// Lists of images with their labels, in place of one folder per class.
//
//   const LabelList list = read_labels("photos/labels.csv", "photos", /*group_column=*/"patient", /*threads=*/2);
//   list.listing.train.files[0];   // {"a/1.jpg", label 0}
//   list.listing.classes;          // {"cat", "dog"}
//   list.parts;                    // choose_parts() of data/index/split.h, from the column `split`
//
// A list is CSV, or TSV with tabs: a line of names, such as "path,label,split,patient", then a line for each image,
// "a/1.jpg,cat,train,17". Or it has Caffe's lines of a path and a label, "a/1.jpg 0", without names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/index/folder_listing.h"

namespace ddp {

struct LabelList {
  FolderListing listing;            // all images in `train`, with the folder at which relative paths begin
  std::string parts;                // empty without a column `split`
  std::vector<std::string> groups;  // of the column of groups; empty without one
};

// Relative paths begin at `data_dir` if the first one is there, otherwise at the folder of the list. The order of the classes is
// that of the lines of `classes.txt` beside the list or in `data_dir`, or else that of their numbers or bytes. Throws Error(data)
// naming the first of the lines that are wrong, and how many there are: a missing image, one with several labels or none, one
// that is there twice, a class that classes.txt does not have; and if a class has no image.
LabelList read_labels(const std::filesystem::path& list, const std::filesystem::path& data_dir,
                      const std::string& group_column, int threads);

}  // namespace ddp
