// What a step of training computes on, for each size of the images: with --progressive-size, steps of the first epochs
// read smaller images and compute a network that is compiled for these, with the same parameters.
//
//   const TrainingImages images = training_images(experiment, run.cursor().epoch);
//   images.data->shape();      // of the batches that a loader reads from it
//   images.network->batch();   // computes on them
//
// Note [Plans of smaller images]
// Everything is planned before the first step, so that a network that does not work with a size is rejected before
// anything runs. The plan of each size belongs to the run like that of the full size: it is stored in the checkpoint and
// reused on resume. At most one of the networks computes at a time; the smaller ones use the memory of the full one, which
// evaluates between the steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "data/pipeline/augmentation.h"
#include "data/pipeline/progressive.h"
#include "model/graph.h"
#include "model/network.h"
#include "model/stages.h"
#include "options/options.h"
#include "train/batch_stage.h"

namespace ddp {

struct Experiment;

// One of the sizes below the full one.
struct SmallerImages {
  Shape image;
  Graph graph{Shape{}};
  std::vector<Stage> stages;
  std::string plan_text;
  std::unique_ptr<ResizedDataset> train;
  std::unique_ptr<Network> network;

  // That of the full size for these images.
  NetworkConfig config(NetworkConfig full) const {
    full.image = image;
    return full;
  }
};

struct TrainingImages {
  const Dataset* data = nullptr;  // augmented
  const Graph* graph = nullptr;
  Network* network = nullptr;
  const ResidentImages* resident = nullptr;  // null: the loader reads the images
  const Augmentation* edits = nullptr;       // that the device makes; null: the loader augments what it reads
};

// The sizes that --progressive-size asks for; without it, the full size.
ProgressiveSizes progressive_sizes(const DataOptions& options, const Shape& full);

// The network at each size below the full one, not planned yet. Throws Error(usage) if it does not work with one.
std::vector<SmallerImages> smaller_images(const Experiment& e);

// Builds the planned networks, which compute in the memory of the full one.
void build_networks(Experiment& e, const NetworkConfig& full);

// The images of an epoch, from 0. The device edits those of the full size only: smaller ones are resized after they are
// augmented.
TrainingImages training_images(const Experiment& e, std::int64_t epoch);

// The key of a size in the plans of a checkpoint: "128x128"; and its plan there, empty if there is none.
std::string size_key(const Shape& image);
std::string stored_plan(const TrainingState& state, const Shape& image);

}  // namespace ddp
