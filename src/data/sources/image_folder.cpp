#include "data/sources/image_folder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "data/images/grey.h"
#include "data/images/image_decoder.h"

namespace ddp {
namespace {

// The first `limit` files, taken from all classes in turn, in the order of the listing.
std::vector<ListedFile> limited(const FolderSplit& split, std::size_t classes, std::int64_t limit) {
  const auto all = static_cast<std::int64_t>(split.files.size());
  if (limit == 0 || limit >= all) return split.files;
  std::vector<std::int64_t> left(classes);
  for (const ListedFile& file : split.files) ++left[static_cast<std::size_t>(file.label)];
  std::vector<std::int64_t> taken(classes);
  for (std::int64_t count = 0; count < limit;) {
    for (std::size_t label = 0; label < classes && count < limit; ++label) {
      if (taken[label] == left[label]) continue;
      ++taken[label];
      ++count;
    }
  }
  std::vector<ListedFile> files;
  for (const ListedFile& file : split.files) {
    if (taken[static_cast<std::size_t>(file.label)]-- > 0) files.push_back(file);
  }
  return files;
}

}  // namespace

ImageFolder::ImageFolder(const FolderSplit& split, const std::vector<std::string>& classes,
                         const ImageFolderConfig& config, std::shared_ptr<BadSamples> bad)
    : Dataset("folder",
              config.limit > 0 ? std::min(config.limit, static_cast<std::int64_t>(split.files.size()))
                               : static_cast<std::int64_t>(split.files.size()),
              config.shape, static_cast<int>(classes.size())),
      folder_(split.folder),
      bad_(std::move(bad)) {
  name_classes(classes);
  for (ListedFile& file : limited(split, classes.size(), config.limit)) {
    files_.push_back(std::move(file.name));
    labels_.push_back(file.label);
  }
  if (config.cache.empty()) return;
  const std::int64_t longer = std::max(config.shape.height, config.shape.width);
  const auto side = static_cast<std::int64_t>(std::ceil(static_cast<double>(longer) / kCentreShare));
  cache_ = open_image_cache(config.cache, {folder_, files_, side}, config.threads);
}

std::string ImageFolder::path(std::int64_t index) const {
  return (folder_ / files_[static_cast<std::size_t>(index)]).string();
}

int ImageFolder::label(std::int64_t index) const { return labels_[static_cast<std::size_t>(index)]; }

std::int64_t ImageFolder::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  return read_region(
      index,
      [&](const ImageSize& image) {
        return centre_region(image, kCentreShare, {shape().width, shape().height});
      },
      pixels);
}

std::int64_t ImageFolder::read_region(std::int64_t index, const RegionChooser& choose,
                                      std::span<std::uint8_t> pixels) const {
  DDP_ASSERT(index >= 0 && index < size() && pixels.size() == shape().size());
  if (shape().channels == 3) return read_colours(index, choose, pixels);
  DDP_ASSERT(shape().channels == 1);
  thread_local std::vector<std::uint8_t> colours;
  const std::size_t plane = pixels.size();
  colours.resize(3 * plane);
  const std::int64_t found = read_colours(index, choose, colours);
  for (std::size_t i = 0; i < plane; ++i) {
    pixels[i] = static_cast<std::uint8_t>(grey_of(colours[i], colours[i + plane], colours[i + 2 * plane]));
  }
  return found;
}

std::int64_t ImageFolder::read_colours(std::int64_t index, const RegionChooser& choose,
                                       std::span<std::uint8_t> pixels) const {
  const Shape coloured = {3, shape().height, shape().width};
  ImageDecoder& decoder = thread_decoder();
  for (std::int64_t tried = 0; tried < size(); ++tried) {
    const std::int64_t candidate = (index + tried) % size();
    if (cache_ && cache_->read(candidate, choose, coloured, pixels)) return candidate;
    try {
      decoder.load(folder_ / files_[static_cast<std::size_t>(candidate)]);
      decoder.decode(choose, coloured, pixels);
      return candidate;
    } catch (const BadImage& reason) {
      bad_->report(path(candidate), reason.what());
    }
  }
  throw Error(ExitCode::data, fmt::format("{}: none of the {} images can be read", folder_.string(), size()));
}

}  // namespace ddp
