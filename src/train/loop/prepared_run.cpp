#include "train/loop/prepared_run.h"

#include <utility>

#include "job/report.h"
#include "model/cuts.h"
#include "train/loop/open_device.h"

namespace ddp {
namespace {

// Collective. A pipeline of more stages than the network has parts is rejected before anything is timed.
std::unique_ptr<Backend> open_for(const MpiSession& session, const Job& job, const Inputs& inputs) {
  return together(session, [&] {
    std::unique_ptr<Backend> backend = open_backend(job.device);
    const std::vector<Stage> stages = stages_of(inputs.graph, inputs.batch, *backend);
    check_parts(inputs.graph, possible_cuts(inputs.graph, stages), job.stages());
    return backend;
  });
}

}  // namespace

PreparedRun::PreparedRun(const MpiSession& session, Communicator& ranks, const Device& device, const Options& options,
                         const RunStart& start)
    : PreparedRun(session, agree_on_job(session, ranks, device, options, start), std::nullopt) {}

// The weights of the model's file are freed once the state has them.
PreparedRun::PreparedRun(const MpiSession& session, Job agreed, std::optional<ImportedModel> imported)
    : job(std::move(agreed)),
      inputs(gather_inputs(session, job, imported)),
      backend(open_for(session, job, inputs)),
      measured(measure(session, job, inputs, *backend)),
      plan(together(session, [&] { return make_plan(job, inputs, *backend, measured); })),
      state(initial_state(session, job, inputs, plan, *backend, imported)),
      engine(session, job, inputs, plan, state, *backend) {}

ReducerConfig reducer_config(const PreparedRun& run) {
  return reducer_config(run.job.options, run.inputs.graph, run.plan.parallelism, run.plan.buckets.bytes,
                        run.state.batch, run.state.share.get());
}

}  // namespace ddp
