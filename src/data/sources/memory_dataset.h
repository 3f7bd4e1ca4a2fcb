// A data set held completely in memory.
//
//   MemoryDataset data("tiny", {1, 28, 28}, 10, std::move(pixels), std::move(labels));
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/sources/dataset.h"

namespace ddp {

class MemoryDataset : public Dataset {
 public:
  // `pixels` [n][shape.size()] and `labels` [n], each in 0 .. classes-1.
  MemoryDataset(std::string name, Shape shape, int classes, std::vector<std::uint8_t> pixels,
                std::vector<std::uint8_t> labels);

  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  int label(std::int64_t index) const override;

 private:
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace ddp
