// What changes the state of a run: the compiled networks, the images that the device keeps, the ranks of a pipeline, and the
// sums over ranks.
//
//   Engine own(session, job, inputs, step_plan, trained, backend);
//   own.network->forward(Pass::evaluation, {trained.parameters()}, stage.samples(0, count), results);
//   const TrainingImages now = training_images(inputs, own, run.cursor().epoch);
//   now.data->shape();      // of the batches that a loader reads from it
//   now.network->batch();   // computes on them
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "comm/sums/device_communicator.h"
#include "job/mpi_session.h"
#include "model/network.h"
#include "train/inputs/inputs.h"
#include "train/inputs/job.h"
#include "train/loop/state.h"
#include "train/parallel/pipeline.h"
#include "train/plan/plan.h"
#include "train/step/batch_buffers.h"
#include "train/step/batch_stage.h"

namespace ddp {

// On a GPU that is only described, there is only `network`, of which nothing is allocated.
struct Engine {
  // Collective.
  Engine(const MpiSession& session, const Job& job, const Inputs& inputs, const Plan& plan, const State& state,
         Backend& backend);

  // Whole, with a pipeline for evaluations only.
  std::unique_ptr<Network> network;
  // The networks of smaller images, in the order of Inputs::smaller; they compute in the memory of `network`.
  std::vector<std::unique_ptr<Network>> smaller;
  // The images in device memory, if that is not host memory and is large enough.
  std::unique_ptr<ResidentImages> resident_train;
  std::unique_ptr<ResidentImages> resident_test;
  std::unique_ptr<PipelineRank> pipeline;  // with the networks of this rank's part; null: there is none
  // All-reduce over the ranks in device memory.
  std::unique_ptr<DeviceCommunicator> sums;

  // The ranks that sum a gradient together: all, or those with the same part of a pipeline.
  Communicator& summing_ranks(Communicator& ranks) const { return pipeline ? pipeline->stage_ranks() : ranks; }
};

// The images of an epoch, from 0. The device edits those of the full size only: smaller ones are resized after they are
// augmented.
TrainingImages training_images(const Inputs& inputs, const Engine& engine, std::int64_t epoch);

}  // namespace ddp
