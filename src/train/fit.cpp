#include "train/fit.h"

#include "base/error.h"
#include "base/text.h"

namespace ddp {
namespace {

std::size_t arena_bytes(Backend& backend, const Graph& graph, NetworkConfig config, const LayoutPlan& plan) {
  config.plan_only = true;
  return Network(backend, graph, config, plan).memory().arena_bytes;
}

// The largest batch up to `limit` whose arena fits into `bytes`; 0: none. Kernels are chosen by rule, since timings are
// valid for one batch size only.
std::int64_t largest_batch(Backend& backend, const Graph& graph, NetworkConfig config, std::int64_t limit,
                           std::size_t bytes) {
  std::int64_t fits = 0;
  std::int64_t too_large = limit + 1;
  while (too_large - fits > 1) {
    config.batch = fits + (too_large - fits) / 2;
    const std::vector<Stage> stages = make_stages(graph, config.batch, backend.ops().takes_bias_into_norm());
    const LayoutPlan plan = plan_layouts(backend, stages, ChoiceMode::fixed);
    (arena_bytes(backend, graph, config, plan) <= bytes ? fits : too_large) = config.batch;
  }
  return fits;
}

}  // namespace

void check_fits(Backend& backend, const Graph& graph, const NetworkConfig& config, const LayoutPlan& plan,
                std::size_t other_bytes) {
  const std::size_t available = backend.queue().available_bytes();
  if (available == 0) return;
  const std::size_t arena = arena_bytes(backend, graph, config, plan);
  if (arena + other_bytes <= available) return;
  const std::size_t left = available > other_bytes ? available - other_bytes : 0;
  const std::int64_t fits = largest_batch(backend, graph, config, config.batch - 1, left);
  const std::string need = fmt::format(
      "{} samples per logical shard need {} of device memory ({} activations, {} parameters, gradients, "
      "optimizer state and batches), but {} are available",
      config.batch, format_bytes(arena + other_bytes), format_bytes(arena), format_bytes(other_bytes),
      format_bytes(available));
  check(fits > 0, ExitCode::out_of_memory,
        "{}; not even 1 sample would fit: use another device or raise its memory limit", need);
  throw Error(ExitCode::out_of_memory,
              fmt::format("{}; {} would fit: raise --logical-shards or lower the global batch", need, fits));
}

}  // namespace ddp
