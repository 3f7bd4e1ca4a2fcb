// The layouts and kernels of a network: those of the checkpoint that a run continues, by the rules of --deterministic, from
// the plan cache, or the fastest ones, timed by the ranks of rank 0's host together.
//
//   const ChosenPlan plan = choose_plan(session, ranks, experiment, plan_request);
//   LayoutPlan layouts = layout_plan_from_text(plan.text, plan_request.stages);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "comm/communicator.h"
#include "job/mpi_session.h"
#include "model/graph.h"
#include "model/network.h"
#include "model/stages.h"

namespace ddp {

struct Experiment;

struct ChosenPlan {
  std::string text;
  std::string origin;  // for the log: "timed in 1.2 s", "from the cache"
};

struct PlanRequest {
  const Graph& graph;
  const std::vector<Stage>& stages;  // of the graph, for the samples of a shard
  const NetworkConfig& config;
  std::string stored;  // the plan in the checkpoint; empty: none
  const std::optional<TrainingState>& resumed;
};

// Collective; the same on all ranks. Uses the experiment's options, batch, device and backend.
ChosenPlan choose_plan(const MpiSession& session, Communicator& ranks, Experiment& e, const PlanRequest& request);

}  // namespace ddp
