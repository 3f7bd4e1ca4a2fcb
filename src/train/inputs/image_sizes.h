// The sizes of training images below the full one: with --progressive-size, steps of the first epochs read smaller images and
// compute a network that is compiled for these, with the same parameters.
//
//   const ProgressiveSizes sizes = progressive_sizes(options.data, data.train->shape());
//   for (const SmallerImages& smaller : smaller_images(sizes, graph, *data.train, options.model.model)) ...
//
// Note [Plans of smaller images]
// Everything is planned before the first step, so that a network that does not work with a size is rejected before
// anything runs. The plan of each size belongs to the run like that of the full size: it is stored in the checkpoint and
// reused on resume. At most one of the networks computes at a time; the smaller ones use the memory of the full one, which
// evaluates between the steps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "data/pipeline/progressive.h"
#include "model/graph.h"
#include "options/options.h"

namespace ddp {

// One of the sizes below the full one.
struct SmallerImages {
  Shape image;
  Graph graph{Shape{}};
  std::unique_ptr<ResizedDataset> train;
};

// The sizes of --progressive-size, or that of training and that of --eval-size; otherwise the full size.
ProgressiveSizes progressive_sizes(const DataOptions& options, const Shape& full);

// The network and the images of each size below the full one. `model` is for messages. Throws Error(usage) if the network does
// not work with one.
std::vector<SmallerImages> smaller_images(const ProgressiveSizes& sizes, const Graph& graph, const Dataset& train,
                                          const std::string& model);

// The key of a size in the plans of a checkpoint: "128x128"; and its plan there, empty if there is none.
std::string size_key(const Shape& image);
std::string stored_plan(const TrainingState& state, const Shape& image);

}  // namespace ddp
