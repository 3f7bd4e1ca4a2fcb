#include "data/sources/image_folder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/status/heartbeat.h"
#include "base/text/utf8.h"
#include "data/images/grey.h"
#include "data/images/image_decoder.h"
#include "data/images/parallel.h"

namespace ddp {
namespace {

// The first `limit` elements, taken from all classes in turn, in their order.
template <class Element>
std::vector<Element> limited(std::vector<Element> elements, std::size_t classes, std::int64_t limit) {
  const auto all = static_cast<std::int64_t>(elements.size());
  if (limit == 0 || limit >= all) return elements;
  std::vector<std::int64_t> left(classes);
  for (const Element& element : elements) ++left[static_cast<std::size_t>(element.label)];
  std::vector<std::int64_t> taken(classes);
  for (std::int64_t count = 0; count < limit;) {
    for (std::size_t label = 0; label < classes && count < limit; ++label) {
      if (taken[label] == left[label]) continue;
      ++taken[label];
      ++count;
    }
  }
  std::vector<Element> chosen;
  for (const Element& element : elements) {
    if (taken[static_cast<std::size_t>(element.label)]-- > 0) chosen.push_back(element);
  }
  return chosen;
}

}  // namespace

ImageFolder::ImageFolder(const std::string& name, std::unique_ptr<PictureStore> pictures,
                         const std::vector<std::string>& classes, const ImageFolderConfig& config,
                         std::shared_ptr<BadSamples> bad)
    : Dataset(name, pictures->size(), config.preprocessing.shape, static_cast<int>(classes.size())),
      preprocessing_(config.preprocessing),
      pictures_(std::move(pictures)),
      bad_(std::move(bad)),
      verified_(std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(size()))) {
  std::vector<std::string> names;
  for (const std::string& each : classes) names.push_back(escape_name(each));
  name_classes(std::move(names));
}

ImageFolder::ImageFolder(const std::string& name, std::vector<Shard> shards, std::vector<Record> records,
                         const std::vector<std::string>& classes, const ImageFolderConfig& config,
                         std::shared_ptr<BadSamples> bad)
    : ImageFolder(
          name,
          std::make_unique<ShardPictures>(std::move(shards), limited(std::move(records), classes.size(), config.limit)),
          classes, config, std::move(bad)) {}

ImageFolder::ImageFolder(const FolderSplit& split, const std::vector<std::string>& classes,
                         const ImageFolderConfig& config, std::shared_ptr<BadSamples> bad)
    : ImageFolder("folder",
                  std::make_unique<FolderPictures>(split.folder, limited(split.files, classes.size(), config.limit)),
                  classes, config, std::move(bad)) {
  if (config.cache.empty()) return;
  const std::int64_t longer = std::max(shape().height, shape().width);
  const auto side = static_cast<std::int64_t>(std::ceil(static_cast<double>(longer) / preprocessing_.crop));
  cache_is_exact_ = config.evaluated && preprocessing_.exact;
  const auto& files = static_cast<const FolderPictures&>(*pictures_);
  cache_ = open_image_cache(config.cache,
                            {files.folder(), files.files(), side, cache_is_exact_ ? &preprocessing_ : nullptr,
                             preprocessing_.upright, preprocessing_.filter},
                            config.threads);
}

std::string ImageFolder::file(std::int64_t index) const { return escape_name(pictures_->name(index)); }

std::int64_t ImageFolder::measured_samples() const {
  constexpr std::int64_t kMeasured = 512;
  constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;
  constexpr std::int64_t kProbed = 8;
  if (size() <= kMeasured) return size();
  if (!preprocessing_.keeps_right_size || size() * shape().height * shape().width > kMostPixels) return kMeasured;
  bool right_size = true;
  const RegionChooser look = [&](const ImageSize& picture) {
    right_size = right_size && preprocessing_.is_right_size(picture);
    return Region{0, 0, 1, 1};
  };
  for (std::int64_t i = 0; i < kProbed && right_size; ++i) {
    try {
      ImageDecoder& decoder = thread_decoder();
      pictures_->load(i * size() / kProbed, decoder, preprocessing_.upright);
      (void)decoder.decode({look, {1, 1}});
    } catch (const BadImage&) {
      // The reason is reported when the file is read.
    }
  }
  return right_size ? size() : kMeasured;
}

int ImageFolder::label(std::int64_t index) const { return pictures_->label(index); }

std::int64_t ImageFolder::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  return read_picture(index, nullptr, preprocessing_.exact, pixels);
}

std::int64_t ImageFolder::read_plain(std::int64_t index, std::span<std::uint8_t> pixels) const {
  return read_picture(index, nullptr, false, pixels);
}

std::int64_t ImageFolder::read_region(std::int64_t index, const RegionChooser& choose,
                                      std::span<std::uint8_t> pixels) const {
  return read_picture(index, &choose, false, pixels);
}

std::int64_t ImageFolder::read_picture(std::int64_t index, const RegionChooser* choose, bool exactly,
                                       std::span<std::uint8_t> pixels) const {
  DDP_ASSERT(index >= 0 && index < size() && pixels.size() == shape().size());
  if (shape().channels == 3) return read_colours(index, choose, exactly, pixels);
  DDP_ASSERT(shape().channels == 1);
  thread_local std::vector<std::uint8_t> colours;
  const std::size_t plane = pixels.size();
  colours.resize(3 * plane);
  const std::int64_t found = read_colours(index, choose, exactly, colours);
  for (std::size_t i = 0; i < plane; ++i) {
    pixels[i] = static_cast<std::uint8_t>(grey_of(colours[i], colours[i + plane], colours[i + 2 * plane]));
  }
  return found;
}

void ImageFolder::read_one(std::int64_t index, const RegionChooser* choose, bool exactly,
                           std::span<std::uint8_t> pixels) const {
  const Shape coloured = {3, shape().height, shape().width};
  const Interpolation filter = preprocessing_.filter;
  if (cache_ && cache_is_exact_ == exactly &&
      (choose == nullptr ? cache_->read_shown(index, preprocessing_, pixels)
                         : cache_->read(index, *choose, coloured, pixels, filter))) {
    return;
  }
  const auto place = static_cast<std::size_t>(index);
  ImageDecoder& decoder = thread_decoder();
  pictures_->load(index, decoder, preprocessing_.upright);
  const bool verify = !verified_[place].load(std::memory_order_relaxed);
  if (choose == nullptr) {
    decoder.decode_shown(preprocessing_, exactly, pixels, verify);
  } else {
    decoder.decode(*choose, coloured, pixels, verify, filter);
  }
  verified_[place].store(true, std::memory_order_relaxed);
}

std::vector<ImageFolder::UnreadableClass> ImageFolder::unreadable_classes(int threads) const {
  std::vector<std::vector<std::int64_t>> samples(static_cast<std::size_t>(classes()));
  for (std::int64_t i = 0; i < size(); ++i) samples[static_cast<std::size_t>(label(i))].push_back(i);
  std::vector<std::string> reasons(samples.size());
  for_each_index(samples.size(), threads, [&](std::size_t c) {
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(3 * shape().height * shape().width));
    for (const std::int64_t index : samples[c]) {
      heartbeat();
      try {
        read_one(index, nullptr, cache_is_exact_, pixels);
        reasons[c].clear();
        return;
      } catch (const BadImage& reason) {
        if (reasons[c].empty()) reasons[c] = fmt::format("{}: {}", file(index), reason.what());
      }
    }
  });
  std::vector<UnreadableClass> found;
  for (std::size_t c = 0; c < reasons.size(); ++c) {
    if (!reasons[c].empty()) found.push_back({static_cast<std::int32_t>(c), reasons[c]});
  }
  return found;
}

std::int64_t ImageFolder::read_colours(std::int64_t index, const RegionChooser* choose, bool exactly,
                                       std::span<std::uint8_t> pixels) const {
  for (std::int64_t tried = 0; tried < size(); ++tried) {
    const std::int64_t candidate = (index + tried) % size();
    try {
      read_one(candidate, choose, exactly, pixels);
      return candidate;
    } catch (const BadImage& reason) {
      bad_->report(pictures_->name(candidate), reason.what());
    }
  }
  throw Error(ExitCode::data, fmt::format("{}: none of the {} images can be read", pictures_->place(), size()));
}

}  // namespace ddp
