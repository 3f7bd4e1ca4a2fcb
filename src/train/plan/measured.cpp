#include "train/plan/measured.h"

#include <span>

#include "job/report.h"
#include "model/layout_plan.h"

namespace ddp {
namespace {

// The plan of the full size and of those of smaller images, or those of the checkpoint.
void choose_plans(const MpiSession& session, const Job& job, const Inputs& inputs, Backend& backend,
                  const std::vector<Stage>& stages, Measured& measured) {
  const NetworkConfig config = network_config(job, inputs);
  const std::optional<TrainingState>& resumed = job.start.resumed;
  // Stored plans are for the shards' number of samples.
  const bool stores = resumed && resumed->logical_shards == inputs.batch.shards;
  measured.kernels = choose_plan(session, job, backend, {inputs.graph, stages, config, stores ? resumed->plan : ""});
  for (const SmallerImages& smaller : inputs.smaller) {
    NetworkConfig own = config;
    own.image = smaller.image;
    measured.smaller.push_back(choose_plan(session, job, backend,
                                           {smaller.graph, stages_of(smaller.graph, inputs.batch, backend), own,
                                            stores ? stored_plan(*resumed, smaller.image) : ""})
                                   .text);
  }
}

// Collective: the ranks must have the same plan, and with --deterministic the same kernels and libraries. Otherwise
// machines may be heterogeneous.
void check_same_plan(const Job& job, Backend& backend, const std::string& text) {
  Fingerprint plan = {plan_part(text)};
  if (job.options.optimizer.deterministic) plan.push_back(kernels_part(backend));
  check_same_on_all_ranks(job.ranks, plan, ExitCode::preflight,
                          "use the same libraries on all ranks, and DDP_INSTRUCTION_SET=avx2 for the same kernels, or "
                          "omit --deterministic");
}

// Collective. All ranks divide the network alike.
void average(Communicator& ranks, std::vector<double>& seconds) {
  ranks.all_reduce(seconds, ReduceOp::sum);
  for (double& each : seconds) each /= ranks.size();
}

}  // namespace

Measured measure(const MpiSession& session, const Job& job, const Inputs& inputs, Backend& backend) {
  Measured measured;
  const std::vector<Stage> stages = stages_of(inputs.graph, inputs.batch, backend);
  choose_plans(session, job, inputs, backend, stages, measured);
  check_same_plan(job, backend, measured.kernels.text);
  if (job.device.described) return measured;
  const bool divides = job.stages() > 1;
  const bool chooses = job.options.distributed.bucket_mib == 0;
  if (job.size() > 1 && !job.on_gpu() && (chooses || divides)) measured.link = measure_link(job.ranks);
  if (!divides) return measured;
  measured.stages = together(session, [&] {
    return measure_stages(backend, inputs.graph, network_config(job, inputs),
                          layout_plan_from_text(measured.kernels.text, stages));
  });
  average(job.ranks, measured.stages.forward);
  average(job.ranks, measured.stages.backward);
  return measured;
}

std::vector<Stage> stages_of(const Graph& graph, const BatchPlan& batch, Backend& backend) {
  return make_stages(graph, batch.per_shard, backend.ops().traits().takes_bias_into_norm);
}

}  // namespace ddp
