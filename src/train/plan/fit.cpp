#include "train/plan/fit.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/text/text.h"
#include "optim/optimizer.h"
#include "train/step/batch_buffers.h"
#include "train/step/parameter_segments.h"
#include "train/step/step.h"

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
    const std::vector<Stage> stages = make_stages(graph, config.batch, backend.ops().traits().takes_bias_into_norm);
    const LayoutPlan plan = plan_layouts(backend, stages, ChoiceMode::expected);
    (arena_bytes(backend, graph, config, plan) <= bytes ? fits : too_large) = config.batch;
  }
  return fits;
}

// What the optimizer needs to update whole matrices.
std::size_t matrix_bytes(const OptimizerOptions& options, const Inputs& inputs, Backend& backend) {
  const std::vector<UpdateMatrix> matrices =
      cut_into_chunks(parameter_segments(inputs.graph, options, inputs.batch.steps_per_epoch)).matrices;
  return matrices.empty() ? 0 : backend.ops().make_matrix_update(matrices)->scratch_bytes();
}

}  // namespace

std::size_t bytes_beside_activations(const Job& job, const Inputs& inputs, Backend& backend) {
  const BatchPlan& batch = inputs.batch;
  const OptimizerOptions& options = job.options.optimizer;
  const std::int64_t local_shards = (batch.shards + batch.ranks - 1) / batch.ranks;
  const auto levels = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(local_shards)));
  const std::size_t slow = options.lookahead > 0 ? 1 : 0;
  const std::size_t flat = (2 + state_buffers(update_settings(options)) + slow + levels) *
                               static_cast<std::size_t>(inputs.graph.flat_elements()) * sizeof(float) +
                           matrix_bytes(options, inputs, backend);
  // Memory that is not counted is the host's, where batches are the loader's.
  if (backend.memory().available_bytes() == 0) return flat;
  // Those of the full size need most.
  const RunData& images = inputs.images;
  const StageConfig streamed =
      batch_buffers(job.options, batch, place_of(job),
                    {.data = images.sets.train.get(), .edits = images.edits ? &*images.edits : nullptr},
                    steps_in_flight(job.options, {.on_gpu = job.on_gpu()}));
  const std::size_t batches = device_bytes(streamed);
  if (!images.keeps_images) return flat + batches;
  StageConfig epoch = streamed;
  epoch.steps = static_cast<std::size_t>(batch.steps_per_epoch);
  return flat + std::max(batches, device_bytes(epoch) + TrainStep::loaded_bytes(batch));
}

void check_fits(Backend& backend, const Graph& graph, const NetworkConfig& config, const LayoutPlan& plan,
                std::size_t other_bytes) {
  const std::size_t available = backend.memory().available_bytes();
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
