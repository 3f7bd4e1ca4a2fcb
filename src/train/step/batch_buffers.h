// What a step of training computes on, and how many batches are in use while steps are in flight.
//
//   BatchStage own(backend.device(), batch_buffers(options, plan, place, images, /*in_flight=*/4));
#pragma once

#include <cstddef>

#include "data/pipeline/augmentation.h"
#include "data/sources/dataset.h"
#include "model/graph.h"
#include "model/network.h"
#include "options/batch.h"
#include "options/options.h"
#include "train/parallel/pipeline.h"
#include "train/step/batch_stage.h"

namespace ddp {

// The images of an epoch, and the network that computes on them.
struct TrainingImages {
  const Dataset* data = nullptr;  // augmented
  const Graph* graph = nullptr;
  Network* network = nullptr;
  const ResidentImages* resident = nullptr;  // null: the loader reads the images
  const Augmentation* edits = nullptr;       // that the device makes; null: the loader augments what it reads
};

// Where steps compute, as far as their number in flight depends on it.
struct StepDevice {
  bool on_gpu = false;
  bool pipelined = false;
  bool recordable_sums = true;  // DeviceCommunicator::recordable()
};

// Steps that are begun before the result of the first is read.
std::size_t steps_in_flight(const Options& options, const StepDevice& device);

// The batches of a rank that are in use meanwhile.
StageConfig batch_buffers(const Options& options, const BatchPlan& plan, const PipelinePlace& place,
                          const TrainingImages& images, std::size_t in_flight);

}  // namespace ddp
