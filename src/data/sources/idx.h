// IDX files, the format of MNIST, Fashion-MNIST, EMNIST and others: grey images of any size, gzipped or not.
//
//   IdxSource source{.name = "mnist", .folders = {"data/mnist", "data"}, .split = Split::train};
//   std::unique_ptr<Dataset> train = open_idx(source);
//
// The format (Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits"): two zero bytes, the element
// type (8: unsigned byte), the number of dimensions, each dimension as a big-endian 32-bit number, then the elements.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/sources/dataset.h"

namespace ddp {

// The unsigned bytes of an IDX file.
struct IdxArray {
  std::vector<std::uint32_t> dimensions;  // as declared by the file
  std::vector<std::uint8_t> elements;     // of the first `limit` items, if limited
};

// Reads an IDX file of unsigned bytes with `rank` dimensions, keeping the first `limit` items (0: all). The whole file
// is read and its length verified in any case. Memory grows with the bytes actually present, so that a forged header
// cannot cause a large allocation. Throws Error(data) naming file and byte offset.
IdxArray read_idx(const std::filesystem::path& path, std::size_t rank, std::int64_t limit = 0);

struct IdxSource {
  std::string name;  // of the data set, for messages
  // Whether launch/get-data has it: 10 classes. Otherwise there are as many as the labels of both splits count.
  bool published = true;
  std::vector<std::filesystem::path>
      folders;  // searched in this order; the first that contains any of the files is used
  Split split = Split::train;
  std::int64_t limit = 0;  // 0: all samples
};

// Opens the pair {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, with or without .gz. Throws
// Error(data) if a file is missing or damaged, if images and labels do not match, if the splits have images of different
// sizes, or if a label of a published data set is out of range.
std::unique_ptr<Dataset> open_idx(const IdxSource& source);

}  // namespace ddp
