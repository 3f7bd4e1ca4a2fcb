// ddp_train plan: the operators, memory and predicted time of a run, without allocating its memory.
#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/output.h"
#include "base/text/text.h"
#include "commands/commands.h"
#include "commands/measure/stages.h"
#include "commands/measure/traffic.h"
#include "commands/ranks.h"
#include "gradients/bucket_size.h"
#include "job/report.h"
#include "train/loop/prepared_run.h"
#include "train/parallel/parallelism.h"
#include "train/parallel/split_linear.h"

namespace ddp {
namespace {

// What is not known of a GPU that is only described.
void print_estimates(const Device& device, Backend& backend) {
  print_text("{}\n", device.note);
  print_text("available on it: {}, without what CUDA and its libraries take, about 1 GiB\n",
             format_bytes(backend.memory().available_bytes()));
  print_text(
      "estimated, since the GPU is not here: forward and backward are not timed; on the GPU itself kernels are timed "
      "and others may be chosen; the workspace of each linear layer is the most that it may be\n");
}

// For the ranks of this job, or some numbers of ranks if there is one.
void print_split_advice(const Graph& graph, const BatchPlan& batch) {
  const std::vector<int> numbers = batch.ranks > 1 ? std::vector<int>{batch.ranks} : std::vector<int>{2, 4, 8};
  for (const int ranks : numbers) {
    print_text("linear layers, {}\n", split_advice(graph, ranks, batch.global_batch));
  }
}

// Collective. The plan of this many stages on the ranks of this job; with one rank, on as many ranks as there are stages.
void print_pipeline(const MpiSession& session, const PreparedRun& prepared) {
  const DistributedOptions& options = prepared.job.options.distributed;
  const BatchPlan& batch = prepared.inputs.batch;
  const Graph& graph = prepared.inputs.graph;
  const LayoutPlan& layouts = prepared.plan.kernels.layouts;
  Communicator& ranks = prepared.job.ranks;
  const int stages = options.pipeline;
  const bool here = ranks.size() > 1;
  const int count = here ? ranks.size() : stages;
  const std::vector<Stage> lowered = make_stages(graph, batch.per_shard);
  StageSeconds seconds;
  PipelinePlan plan;
  PipelineShape shape = pipeline_shape(options, batch, *prepared.backend, stages, count);
  const LinkSpeed link = here ? measure_link(ranks) : LinkSpeed{};
  together(session, [&] {
    (void)pipeline_place(stages, count, 0);
    seconds = measure_stages(*prepared.backend, graph, prepared.plan.config, layouts);
    // One rank has the whole global batch in its shards.
    const auto divided = static_cast<double>(std::max(1, count / batch.shards));
    shape.shards = std::max(shape.shards, count);
    shape.samples = (batch.global_batch + shape.shards - 1) / shape.shards;
    for (std::vector<double>* each : {&seconds.forward, &seconds.backward}) {
      for (double& second : *each) second /= divided;
    }
    plan = plan_pipeline(graph, lowered, layouts, seconds, here ? &link : nullptr, shape);
  });
  if (session.rank() != 0) return;
  print_text("pipeline, {}: {}\n", counted(static_cast<std::uint64_t>(count), "rank"), pipeline_text(plan, shape));
  print_text("pipeline, estimate: {}\n", estimate_text(plan, shape));
}

}  // namespace

int run_plan(const MpiSession& session, const Options& options) {
  const Ranks ranks = open_ranks(session, options);
  log_device(ranks.device);
  const bool described = ranks.device.described.has_value();
  const PreparedRun prepared(session, *ranks.communicator, ranks.device, with_one_batch(options, session.size()),
                             {.data = DataUse::sample});
  const Inputs& inputs = prepared.inputs;
  const Plan& plan = prepared.plan;
  Network& network = *prepared.engine.network;
  const bool on_cpu = prepared.job.on_cpu();
  check(on_cpu || options.distributed.pipeline == 1, ExitCode::usage,
        "--pipeline works on CPUs only; use --device cpu, or remove it");
  if (options.distributed.pipeline > 1) print_pipeline(session, prepared);
  if (session.rank() != 0) return static_cast<int>(ExitCode::done);
  print_text("{}, {} samples per shard, {} ({})\n\n{}\n", options.model.model, inputs.batch.per_shard,
             counted(static_cast<std::uint64_t>(inputs.batch.shards), "shard"), plan.origin, network.describe());
  std::vector<PlannedBuffer> buffers = network.memory().buffers;
  std::stable_sort(buffers.begin(), buffers.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  constexpr std::string_view kArena = "arena, shared by liveness";
  std::size_t widest = kArena.size();
  for (const PlannedBuffer& buffer : buffers) widest = std::max(widest, buffer.name.size());
  print_text("{:<{}} {:>14} {:>8}\n", "buffer", widest, "bytes", "alive");
  std::size_t separate = 0;
  for (const PlannedBuffer& buffer : buffers) {
    if (buffer.bytes == 0) continue;
    separate += buffer.bytes;
    print_text("{:<{}} {:>14} {:>4}-{:<3}\n", buffer.name, widest, format_count(buffer.bytes), buffer.first,
               buffer.last);
  }
  print_text("{:<{}} {:>14}\n{:<{}} {:>14}\n", "sum", widest, format_count(separate), kArena, widest,
             format_count(network.memory().arena_bytes));
  print_text("parameters {}, gradient of the same size\n",
             format_bytes(static_cast<std::uint64_t>(inputs.graph.flat_elements()) * sizeof(float)));
  print_text("device memory of a rank: {}; {} activations, {} parameters, gradients, optimizer state and batches\n",
             format_bytes(network.memory().arena_bytes + plan.state_bytes), format_bytes(network.memory().arena_bytes),
             format_bytes(plan.state_bytes));
  if (on_cpu) print_split_advice(inputs.graph, inputs.batch);
  if (!inputs.smaller.empty()) print_text("image sizes: {}; all of this is for the last one\n", inputs.sizes.text());
  if (described) {
    print_traffic(prepared.job.options, *prepared.backend, network);
    print_estimates(ranks.device, *prepared.backend);
  } else {
    print_stages(prepared);
    print_text("predicted forward and backward: {} per shard\n",
               format_duration(plan.kernels.layouts.predicted_seconds));
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
