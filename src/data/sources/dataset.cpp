#include "data/sources/dataset.h"

#include "data/images/resample.h"

namespace ddp {

std::int64_t Dataset::read_region(std::int64_t index, const RegionChooser& choose,
                                  std::span<std::uint8_t> pixels) const {
  thread_local std::vector<std::uint8_t> whole;
  thread_local Resampler resampler;
  whole.resize(shape_.size());
  const std::int64_t found = read(index, whole);
  const Region region = choose({shape_.width, shape_.height});
  const Shape plane{1, shape_.height, shape_.width};
  for (std::size_t channel = 0; channel < static_cast<std::size_t>(shape_.channels); ++channel) {
    const std::size_t begin = channel * plane.size();
    resampler.run({whole.data() + begin, shape_.width, shape_.height, 1}, region, plane,
                  pixels.subspan(begin, plane.size()));
  }
  return found;
}

}  // namespace ddp
