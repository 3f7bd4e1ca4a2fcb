// ddp_train plan: the operators, memory and predicted time of a run, without allocating its memory.
#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "commands/commands.h"
#include "commands/ranks.h"
#include "train/experiment.h"

namespace ddp {

int run_plan(const MpiSession& session, const Options& options) {
  const Ranks ranks = open_ranks(session, options);
  log_device(ranks.device);
  const Experiment e = prepare_experiment(session, *ranks.communicator, ranks.device,
                                          with_one_batch(options, session.size()), std::nullopt);
  if (session.rank() != 0) return static_cast<int>(ExitCode::done);
  fmt::print("{}, {} samples per shard, {} ({})\n\n{}\n", options.model.model, e.batch.per_shard,
             counted(static_cast<std::uint64_t>(e.batch.shards), "shard"), e.plan_origin, e.network->describe());
  std::vector<PlannedBuffer> buffers = e.network->memory().buffers;
  std::stable_sort(buffers.begin(), buffers.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  fmt::print("{:<28} {:>12} {:>8}\n", "buffer", "bytes", "alive");
  std::size_t separate = 0;
  for (const PlannedBuffer& buffer : buffers) {
    if (buffer.bytes == 0) continue;
    separate += buffer.bytes;
    fmt::print("{:<28} {:>12} {:>3}-{:<3}\n", buffer.name, format_count(buffer.bytes), buffer.first, buffer.last);
  }
  fmt::print("{:<28} {:>12}\n{:<28} {:>12}\n", "sum", format_count(separate), "arena, shared by liveness",
             format_count(e.network->memory().arena_bytes));
  fmt::print("parameters {}, gradient of the same size\n",
             format_bytes(static_cast<std::uint64_t>(e.graph.parameter_count()) * sizeof(float)));
  fmt::print("predicted forward and backward: {} per shard\n", format_duration(e.plan.predicted_seconds));
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
