#include "train/inputs/single_values.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text/text.h"
#include "train/inputs/inputs.h"

namespace ddp {
namespace {

// The first batch normalisation of maps of 1x1, or null; if `measuring`, of those that measure their statistics.
const Layer* norm_of_points(const Graph& graph, bool measuring) {
  for (const Layer& layer : graph.layers()) {
    const auto* norm = std::get_if<BatchNormLayer>(&layer.kind);
    if (norm == nullptr || (measuring && norm->frozen)) continue;
    if (layer.output.height == 1 && layer.output.width == 1) return &layer;
  }
  return nullptr;
}

// The same for all sizes of images.
const Layer* norm_of_points(const Inputs& inputs, bool measuring) {
  const Layer* found = norm_of_points(inputs.graph, measuring);
  for (const SmallerImages& smaller : inputs.smaller) {
    if (found == nullptr) found = norm_of_points(smaller.graph, measuring);
  }
  return found;
}

bool has_single_values(const Job& job, const BatchPlan& batch) {
  return job.options.model.sync_batch_norm ? batch.global_batch == 1 : batch.global_batch / batch.shards == 1;
}

// The option with which the layer's maps become larger than 1x1, or "".
std::string larger_images(const DataOptions& options, const Graph& graph, const Layer& layer) {
  const std::vector<Layer>& layers = graph.layers();
  const auto found = std::find_if(layers.begin(), layers.end(), [&](const Layer& each) { return &each == &layer; });
  if (found == layers.end()) return "--progressive-size";
  if (!resizes_pictures(options.dataset) && options.dataset != "synthetic") return "";
  const Shape& image = graph.shape(graph.input());
  try {
    const Graph larger = graph.at_size(2 * image.height, 2 * image.width);
    const Shape& maps = larger.layers()[static_cast<std::size_t>(found - layers.begin())].output;
    return maps.height * maps.width > 1 ? "--image-size" : "";
  } catch (const Error&) {
    return "";  // the network is for one size
  }
}

std::string cures(const Job& job, const Inputs& inputs, const Layer& layer) {
  const BatchPlan& batch = inputs.batch;
  std::vector<std::string> words = {fmt::format("--global-batch {} or more", 2 * batch.shards)};
  if (batch.shards > 1) {
    const std::int64_t fewer = std::max<std::int64_t>(batch.ranks, batch.global_batch / 2);
    words.push_back(fewer < batch.shards ? fmt::format("--logical-shards {}", fewer) : "fewer ranks");
    const bool synchronizes = batch.shards == batch.ranks && job.stages() == 1 && !job.on_gpu();
    if (synchronizes && !job.options.model.sync_batch_norm) words.emplace_back("--sync-batch-norm");
  }
  const std::string larger = larger_images(job.options.data, inputs.graph, layer);
  if (!larger.empty()) words.push_back("a larger " + larger);
  if (words.size() > 1) words.back() = "or " + words.back();
  return join(words);
}

std::string single_value_text(const ModelOptions& options, const BatchPlan& batch, const std::string& layer) {
  const std::string shard =
      options.sync_batch_norm
          ? "the global batch has 1 sample"
          : fmt::format("a logical shard has 1 sample, in a global batch of {} in {}", batch.global_batch,
                        counted(static_cast<std::uint64_t>(batch.shards), "logical shard"));
  return fmt::format(
      "batch normalization '{}' of --model {} reads maps of 1x1 and {}: it would have a single value of each channel, "
      "which it normalizes to zero",
      layer, options.model, shard);
}

}  // namespace

BatchPlan without_single_values(const Job& job, const Inputs& inputs) {
  BatchPlan batch = inputs.batch;
  const Layer* measuring = norm_of_points(inputs, true);
  if (measuring != nullptr && has_single_values(job, batch)) {
    const std::string text = single_value_text(job.options.model, batch, measuring->name);
    check(!refuses_single_values(job.defaults), ExitCode::usage, "{}; use {}", text, cures(job, inputs, *measuring));
    log_warning("{}; the run goes on as it began, a new one refuses this", text);
    return batch;
  }
  if (!refuses_single_values(job.defaults)) return batch;
  // Frozen layers count, so that a resumed run may freeze others.
  const Layer* norm = norm_of_points(inputs, false);
  const bool alone = !job.options.model.sync_batch_norm;
  if (norm == nullptr || batch.global_batch < 2 * (alone ? batch.shards : 1)) return batch;
  batch.at_least_two(alone);
  check(batch.steps_per_epoch > 0, ExitCode::usage,
        "a training set of 1 image leaves no steps, as batch normalization '{}' would have a single value of each "
        "channel; use more images",
        norm->name);
  return batch;
}

std::string last_batch_text(const Job& job, const Inputs& inputs) {
  const BatchPlan& batch = inputs.batch;
  const Layer* norm = refuses_single_values(job.defaults) ? norm_of_points(inputs, false) : nullptr;
  if (norm == nullptr || job.options.batch.drop_last) return "";
  const auto dropped = static_cast<std::uint64_t>(batch.dropped);
  const std::int64_t used = batch.shards_in(batch.last_batch);
  std::string text;
  if (used < batch.shards) {
    text = fmt::format("{} in {}", counted(static_cast<std::uint64_t>(batch.last_batch), "sample"),
                       counted(static_cast<std::uint64_t>(used), "logical shard"));
  }
  if (dropped > 0)
    text += fmt::format("{}{} dropped in each epoch", text.empty() ? "" : ", ", counted(dropped, "sample"));
  if (text.empty()) return "";
  return fmt::format("{}, as batch normalization '{}' needs two values of each channel", text, norm->name);
}

}  // namespace ddp
