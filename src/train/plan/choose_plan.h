// The layouts and kernels of a network: those of the checkpoint that a run continues, by the rules of --deterministic, from
// the plan cache, or the fastest ones, timed by the ranks of rank 0's host together.
//
//   const ChosenPlan plan = choose_plan(session, job, backend, plan_request);
//   LayoutPlan layouts = layout_plan_from_text(plan.text, plan_request.stages);
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "job/mpi_session.h"
#include "model/graph.h"
#include "model/network.h"
#include "model/stages.h"
#include "train/inputs/job.h"

namespace ddp {

struct ChosenPlan {
  std::string text;
  std::string origin;  // for the log: "timed in 1.2 s", "from the cache"
};

struct PlanRequest {
  const Graph& graph;
  const std::vector<Stage>& stages;  // of the graph, for the samples of a shard
  const NetworkConfig& config;
  std::string stored;  // the plan in the checkpoint that the run continues; empty: none
};

// Collective; the same on all ranks.
ChosenPlan choose_plan(const MpiSession& session, const Job& job, Backend& backend, const PlanRequest& request);

}  // namespace ddp
