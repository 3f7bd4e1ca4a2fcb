#include "train/loop/engine.h"

#include <utility>

#include "job/report.h"
#include "options/defaults.h"
#include "train/loop/open_device.h"

namespace ddp {
namespace {

// The whole network, which only evaluates where there is a pipeline, and those of other sizes.
void compile_networks(const Inputs& inputs, const Plan& plan, Backend& backend, Engine& engine) {
  NetworkConfig whole = plan.config;
  whole.forward_only = plan.parallelism.pipelined();
  engine.network = std::make_unique<Network>(backend, inputs.graph, whole, plan.kernels.layouts);
  for (std::size_t i = 0; i < inputs.smaller.size(); ++i) {
    NetworkConfig config = plan.config;
    config.image = inputs.smaller[i].image;
    config.lender = engine.network.get();
    engine.smaller.push_back(
        std::make_unique<Network>(backend, inputs.smaller[i].graph, config, plan.smaller[i].layouts));
  }
}

// As many copies of this rank's part as it keeps shards.
void compile_parts(const Inputs& inputs, const Plan& plan, const BatchPlan& batch, Backend& backend,
                   PipelineRank& pipeline) {
  const PipelinePlace& place = plan.parallelism.place;
  NetworkConfig part = plan.config;
  part.stages = plan.own_stages();
  const std::int64_t kept = shards_in_flight(place, batch.shards_of(place.replica).size());
  for (std::int64_t copy = 0; copy < kept; ++copy) {
    pipeline.networks.push_back(std::make_unique<Network>(backend, inputs.graph, part, plan.kernels.layouts));
  }
}

}  // namespace

Engine::Engine(const MpiSession& session, const Job& job, const Inputs& inputs, const Plan& plan, const State& state,
               Backend& backend) {
  const Parallelism& parallelism = plan.parallelism;
  together(session, [&] {
    compile_networks(inputs, plan, backend, *this);
    if (job.device.described) return;
    // Data sets that fit into the device's memory stay there.
    resident_train = make_resident(backend.device(), inputs.train(), inputs.images.keeps_images);
    resident_test = make_resident(backend.device(), inputs.test(), inputs.test().fixed());
  });
  if (job.device.described) return;
  if (parallelism.pipelined()) {
    pipeline = std::make_unique<PipelineRank>(parallelism.place, job.ranks, parallelism.parts);
    together(session, [&] { compile_parts(inputs, plan, state.batch, backend, *pipeline); });
  }
  const Reduction algorithm = reduction_of(job.options);
  sums = open_sums(job.device, summing_ranks(job.ranks), backend.device(),
                   {algorithm,
                    state.batch.shards,
                    {},
                    hosts_of_sums(job.device, parallelism.place),
                    /*scatter=*/state.share != nullptr && algorithm == Reduction::ring,
                    /*one_ring_if_uneven=*/!sums_uneven_hosts_in_two_levels(job.defaults)});
}

TrainingImages training_images(const Inputs& inputs, const Engine& engine, std::int64_t epoch) {
  const RunData& images = inputs.images;
  const std::size_t size = inputs.sizes.at_epoch(epoch);
  if (size < inputs.smaller.size()) {
    const SmallerImages& smaller = inputs.smaller[size];
    return {smaller.train.get(), &smaller.graph, engine.smaller[size].get(), nullptr, nullptr};
  }
  return {images.sets.train.get(), &inputs.graph, engine.network.get(), engine.resident_train.get(),
          images.edits ? &*images.edits : nullptr};
}

}  // namespace ddp
