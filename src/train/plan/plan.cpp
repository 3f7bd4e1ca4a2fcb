#include "train/plan/plan.h"

#include <utility>

#include "train/plan/fit.h"

namespace ddp {
namespace {

PlannedNetwork planned(const std::string& text, const std::vector<Stage>& stages) {
  return {text, layout_plan_from_text(text, stages)};
}

PipelinePlan divide_network(const Job& job, const Inputs& inputs, Backend& backend, const Measured& measured,
                            const Plan& plan) {
  const DistributedOptions& options = job.options.distributed;
  PipelineShape shape = pipeline_shape(options, inputs.batch, backend, job.stages(), job.size());
  if (job.start.resumed) {
    shape.first.assign(job.start.resumed->pipeline_first.begin(), job.start.resumed->pipeline_first.end());
  }
  if (options.bucket_mib == 0) {
    const auto elements = static_cast<std::size_t>(inputs.graph.flat_elements());
    shape.bucket_bytes = best_bucket_bytes(*measured.link, elements * shape.gradient);
  }
  return plan_pipeline(inputs.graph, plan.stages, plan.kernels.layouts, measured.stages, &*measured.link, shape);
}

void take_edits(const RunData& images, NetworkConfig& config) {
  if (!images.edits) return;
  config.edits_reflect = images.edits->crop_reflects;
  config.fill = images.edits->fill;
}

}  // namespace

Range Plan::own_stages() const {
  const std::vector<std::size_t>& first = pipeline.first;
  const auto part = static_cast<std::size_t>(parallelism.place.stage);
  return {static_cast<std::int64_t>(first[part]),
          static_cast<std::int64_t>(parallelism.place.last() ? stages.size() : first[part + 1])};
}

Plan make_plan(const Job& job, const Inputs& inputs, Backend& backend, const Measured& measured) {
  Plan plan;
  plan.stages = stages_of(inputs.graph, inputs.batch, backend);
  plan.kernels = planned(measured.kernels.text, plan.stages);
  plan.origin = measured.kernels.origin;
  for (std::size_t i = 0; i < inputs.smaller.size(); ++i) {
    plan.smaller.push_back(planned(measured.smaller[i], stages_of(inputs.smaller[i].graph, inputs.batch, backend)));
  }
  plan.config = network_config(job, inputs);
  plan.state_bytes = bytes_beside_activations(job, inputs, backend);
  check_fits(backend, inputs.graph, plan.config, plan.kernels.layouts, plan.state_bytes);
  plan.config.plan_only = job.device.described.has_value();
  take_edits(inputs.images, plan.config);
  if (job.stages() > 1) plan.pipeline = divide_network(job, inputs, backend, measured, plan);
  plan.parallelism = divide_step(job.options, job.device, inputs.graph, place_of(job), plan.pipeline.held);
  if (job.evaluates()) plan.parallelism.shares_state = false;
  const std::size_t gradients = gradient_bytes(job.options.distributed, inputs.graph, plan.parallelism);
  plan.buckets = choose_bucket_bytes(job.options, gradients, measured.link, job.size(), job.start.resumed);
  return plan;
}

}  // namespace ddp
