#include "train/image_sizes.h"

#include <fmt/core.h>

#include "base/error.h"
#include "train/experiment.h"

namespace ddp {

ProgressiveSizes progressive_sizes(const DataOptions& options, const Shape& full) {
  if (!options.progressive_size) return ProgressiveSizes(full);
  return ProgressiveSizes({.height = options.progressive_size->height,
                           .width = options.progressive_size->width,
                           .begin = options.progressive_begin,
                           .end = options.progressive_end,
                           .stages = options.progressive_stages},
                          full);
}

std::vector<SmallerImages> smaller_images(const Experiment& e) {
  std::vector<SmallerImages> all;
  for (const Shape& image : e.sizes.shapes()) {
    if (image == e.sizes.shapes().back()) break;
    SmallerImages smaller;
    smaller.image = image;
    try {
      smaller.graph = e.graph.at_size(image.height, image.width);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("--progressive-size: --model {} does not work with images of {}: {}",
                                            e.options.model.model, size_key(image), error.what()));
    }
    smaller.stages = make_stages(smaller.graph, e.batch.per_shard, e.backend->ops().takes_bias_into_norm());
    smaller.train = std::make_unique<ResizedDataset>(*e.data.train, image);
    all.push_back(std::move(smaller));
  }
  return all;
}

void build_networks(Experiment& e, const NetworkConfig& full) {
  for (SmallerImages& smaller : e.smaller) {
    NetworkConfig config = smaller.config(full);
    config.lender = e.network.get();
    smaller.network = std::make_unique<Network>(*e.backend, smaller.graph, config,
                                                layout_plan_from_text(smaller.plan_text, smaller.stages));
  }
}

TrainingImages training_images(const Experiment& e, std::int64_t epoch) {
  const std::size_t size = e.sizes.at_epoch(epoch);
  if (size < e.smaller.size()) {
    const SmallerImages& smaller = e.smaller[size];
    return {smaller.train.get(), &smaller.graph, smaller.network.get(), nullptr, nullptr};
  }
  return {e.data.train.get(), &e.graph, e.network.get(), e.resident_train.get(), e.edits ? &*e.edits : nullptr};
}

std::string size_key(const Shape& image) { return fmt::format("{}x{}", image.height, image.width); }

std::string stored_plan(const TrainingState& state, const Shape& image) {
  const auto found = state.plans.find(size_key(image));
  return found == state.plans.end() ? "" : found->second;
}

}  // namespace ddp
