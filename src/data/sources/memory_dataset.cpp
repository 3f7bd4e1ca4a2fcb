#include "data/sources/memory_dataset.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ddp {

MemoryDataset::MemoryDataset(std::string name, Shape shape, int classes, std::vector<std::uint8_t> pixels,
                             std::vector<std::uint8_t> labels)
    : Dataset(std::move(name), static_cast<std::int64_t>(labels.size()), shape, classes),
      pixels_(std::move(pixels)),
      labels_(std::move(labels)) {
  DDP_ASSERT(pixels_.size() == labels_.size() * shape.size());
  DDP_ASSERT(std::all_of(labels_.begin(), labels_.end(), [classes](int label) { return label < classes; }));
}

std::int64_t MemoryDataset::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  DDP_ASSERT(index >= 0 && index < size() && pixels.size() == shape().size());
  std::copy_n(pixels_.data() + static_cast<std::size_t>(index) * pixels.size(), pixels.size(), pixels.data());
  return index;
}

int MemoryDataset::label(std::int64_t index) const {
  DDP_ASSERT(index >= 0 && index < size());
  return labels_[static_cast<std::size_t>(index)];
}

}  // namespace ddp
