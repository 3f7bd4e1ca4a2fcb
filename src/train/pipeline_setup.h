// Builds the pipeline of an experiment: measures, divides the network, and compiles this rank's part.
//
//   experiment.place = place_of(experiment, ranks.size(), ranks.rank());   // one stage: there is no pipeline
//   ...
//   set_up_pipeline(session, ranks, experiment, network_config, stages, *link, /*stored=*/{});
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "gradients/bucket_size.h"
#include "job/mpi_session.h"
#include "model/network.h"
#include "model/stages.h"
#include "train/experiment.h"

namespace ddp {

// Where this rank is. Throws Error(usage) for GPUs, and if the stages do not divide the ranks.
PipelinePlace place_of(const Experiment& e, int ranks, int rank);

// Collective. `config` is that of the whole network for training; `stored`: PipelineShape::first.
void set_up_pipeline(const MpiSession& session, Communicator& ranks, Experiment& e, const NetworkConfig& config,
                     const std::vector<Stage>& stages, const LinkSpeed& link, const std::vector<std::int64_t>& stored);

// The hosts of the ranks that sum a gradient together, for SumOrder; empty: those of all ranks.
std::vector<int> hosts_of_sums(const Experiment& e);

// The shape of a pipeline of so many stages for this experiment.
PipelineShape pipeline_shape(const Experiment& e, int stages, int ranks);

}  // namespace ddp
