#include "data/sources/synthetic.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/random.h"

namespace ddp {
namespace {

constexpr int kClasses = 10;
constexpr std::int64_t kBlock = 8;
// Philox keys: one for the class patterns, one for the noise of each split.
constexpr std::uint32_t kPatternKey = 1;
constexpr std::uint32_t kTrainKey = 2;
constexpr std::uint32_t kTestKey = 3;

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(Split split, std::int64_t size, const Shape& shape)
      : Dataset("synthetic", size, shape, kClasses), key_(split == Split::train ? kTrainKey : kTestKey) {}

  int label(std::int64_t index) const override { return static_cast<int>(index % kClasses); }

  // The pattern contributes 64 to 191, the noise 0 to 63.
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    DDP_ASSERT(pixels.size() == shape().size());
    draw_noise(index, pixels);
    const auto label_word = static_cast<std::uint32_t>(label(index));
    const auto [channels, height, width] = shape();
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t y = 0; y < height; ++y) {
        const std::span<std::uint8_t> row = pixels.subspan(static_cast<std::size_t>((c * height + y) * width));
        for (std::int64_t x = 0; x < width; x += kBlock) {
          const std::uint8_t level = pattern(label_word, c, y / kBlock, x / kBlock);
          const std::int64_t end = std::min(x + kBlock, width);
          for (std::int64_t i = x; i < end; ++i) {
            std::uint8_t& pixel = row[static_cast<std::size_t>(i)];
            pixel = static_cast<std::uint8_t>(level + pixel % 64);
          }
        }
      }
    }
    return index;
  }

 private:
  void draw_noise(std::int64_t index, std::span<std::uint8_t> pixels) const {
    const auto low = static_cast<std::uint32_t>(index);
    const auto high = static_cast<std::uint32_t>(index >> 32);
    std::uint32_t counter = 0;
    for (std::size_t begin = 0; begin < pixels.size(); begin += sizeof(std::array<std::uint32_t, 4>)) {
      const std::array<std::uint32_t, 4> block = philox({counter++, 0, low, high}, {key_, 0});
      std::memcpy(&pixels[begin], block.data(), std::min(sizeof(block), pixels.size() - begin));
    }
  }

  static std::uint8_t pattern(std::uint32_t label, std::int64_t c, std::int64_t block_y, std::int64_t block_x) {
    const std::array<std::uint32_t, 4> block =
        philox({static_cast<std::uint32_t>(block_x), static_cast<std::uint32_t>(block_y), static_cast<std::uint32_t>(c),
                label},
               {kPatternKey, 0});
    return static_cast<std::uint8_t>(64 + block[0] % 128);
  }

  std::uint32_t key_;
};

}  // namespace

std::unique_ptr<Dataset> make_synthetic(Split split, const SyntheticOptions& options) {
  DDP_ASSERT(options.shape.size() > 0 && options.limit >= 0);
  const std::int64_t all = split == Split::train ? kSyntheticTrainSize : kSyntheticTestSize;
  const std::int64_t size = options.limit == 0 ? all : std::min(options.limit, all);
  return std::make_unique<SyntheticDataset>(split, size, options.shape);
}

}  // namespace ddp
