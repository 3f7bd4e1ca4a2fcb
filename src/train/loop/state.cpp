#include "train/loop/state.h"

#include <span>
#include <utility>

#include "job/report.h"
#include "train/inputs/initial_weights.h"
#include "train/parallel/shared_state.h"

namespace ddp {

State first_state(const Job& job, const Inputs& inputs, const Plan& plan, Backend& backend,
                  const std::optional<ImportedModel>& imported, std::unique_ptr<HostShare> share) {
  State state;
  state.share = std::move(share);
  state.batch = inputs.batch;
  const auto count = static_cast<std::size_t>(inputs.graph.flat_elements());
  const std::size_t bytes = count * sizeof(float);
  state.parameter_memory = state.share ? state.share->take(bytes) : backend.memory().allocate(bytes, "the parameters");
  state.host_parameters = std::make_unique<HostMirror>(backend.device(), state.parameters(), count);
  state.statistics = std::make_unique<ShardStatistics>(
      backend, inputs.graph, inputs.batch, plan.parallelism.place.replica, job.options.optimizer.lookahead > 0);
  if (plan.parallelism.pipelined()) {
    state.statistics->update_only(statistics_of(inputs.graph, plan.stages, plan.own_stages()));
  }
  // Ranks that share them do not write at the same time.
  if (!state.share || state.share->first()) {
    state.statistics->set(initial_weights(job, inputs, imported, state.host_parameters->values()));
  }
  return state;
}

State initial_state(const MpiSession& session, const Job& job, const Inputs& inputs, const Plan& plan, Backend& backend,
                    const std::optional<ImportedModel>& imported) {
  if (job.device.described) return {};
  std::unique_ptr<HostShare> share;
  if (plan.parallelism.shares_state) {
    share = share_state(job.ranks, job.device, inputs.graph, job.options.optimizer);
  }
  State state = together(session, [&] { return first_state(job, inputs, plan, backend, imported, std::move(share)); });
  broadcast_floats(job.ranks, *state.host_parameters);
  state.statistics->broadcast(job.ranks);
  if (state.share) state.share->meet();
  return state;
}

void broadcast_floats(Communicator& ranks, HostMirror& mirror) {
  if (!mirror.values().empty()) ranks.broadcast(std::as_writable_bytes(mirror.values()), 0);
  mirror.push();
}

}  // namespace ddp
