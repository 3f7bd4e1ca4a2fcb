#include "train/inputs/image_sizes.h"

#include <fmt/core.h>

#include <utility>

#include "base/error.h"

namespace ddp {

ProgressiveSizes progressive_sizes(const DataOptions& options, const Shape& full) {
  const ImageSides& trained = options.image_size;
  if (options.eval_size && (trained.height != full.height || trained.width != full.width)) {
    return ProgressiveSizes(Shape{full.channels, trained.height, trained.width}, full);
  }
  if (!options.progressive_size) return ProgressiveSizes(full);
  return ProgressiveSizes({.height = options.progressive_size->height,
                           .width = options.progressive_size->width,
                           .begin = options.progressive_begin,
                           .end = options.progressive_end,
                           .stages = options.progressive_stages},
                          full);
}

std::vector<SmallerImages> smaller_images(const ProgressiveSizes& sizes, const Graph& graph, const Dataset& train,
                                          const std::string& model) {
  std::vector<SmallerImages> all;
  for (const Shape& image : sizes.shapes()) {
    if (image == sizes.shapes().back()) break;
    SmallerImages smaller;
    smaller.image = image;
    try {
      smaller.graph = graph.at_size(image.height, image.width);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: --model {} does not work with images of {}: {}",
                                            sizes.larger_in_evaluations() ? "--eval-size" : "--progressive-size", model,
                                            size_key(image), error.what()));
    }
    smaller.train = std::make_unique<ResizedDataset>(train, image);
    all.push_back(std::move(smaller));
  }
  return all;
}

std::string size_key(const Shape& image) { return fmt::format("{}x{}", image.height, image.width); }

std::string stored_plan(const TrainingState& state, const Shape& image) {
  const auto found = state.plans.find(size_key(image));
  return found == state.plans.end() ? "" : found->second;
}

}  // namespace ddp
