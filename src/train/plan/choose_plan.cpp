#include "train/plan/choose_plan.h"

#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/text.h"
#include "job/report.h"
#include "train/inputs/resume.h"
#include "train/plan/plan_cache.h"
#include "train/plan/time_kernels.h"

namespace ddp {
namespace {

// The cache of rank 0; none with --deterministic, where the rules of the kernels are fast, and for a GPU that is only described.
PlanCache plan_cache_of(const Job& job) {
  const bool timed = !job.options.optimizer.deterministic && !job.device.described.has_value();
  return PlanCache(timed ? plan_cache_directory(job.options) : std::nullopt);
}

// The same plan with the times of `to` samples instead of `from`.
LayoutPlan rescaled(LayoutPlan plan, std::int64_t from, std::int64_t to) {
  plan.predicted_seconds *= static_cast<double>(to) / static_cast<double>(from);
  return plan;
}

// Whether the kernels of the checkpoint's plan are available; another machine or version of oneDNN may lack some.
bool is_usable(const Job& job, Backend& backend, const PlanRequest& request) {
  NetworkConfig config = request.config;
  config.plan_only = true;
  try {
    (void)Network(backend, request.graph, config, layout_plan_from_text(request.stored, request.stages));
    return true;
  } catch (const Error& error) {
    if (error.code() != ExitCode::preflight) throw;
    const std::string changed = changed_kernel_options(*job.start.resumed, job.options);
    if (changed.empty()) {
      log_warning(
          "kernels of the checkpoint are not available here ({}); others are chosen{}", error.what(),
          job.options.optimizer.deterministic ? ", and the bits are no longer those of an uninterrupted run" : "");
    } else {
      log_info("this run has {} of the checkpoint, and its steps need other kernels, which are chosen", changed);
    }
    return false;
  }
}

// On rank 0: the plan of the checkpoint, otherwise of the rules or of the cache; otherwise none.
ChosenPlan find_plan(const Job& job, Backend& backend, const PlanRequest& request) {
  const bool fixed = job.options.optimizer.deterministic;
  const std::vector<Stage>& stages = request.stages;
  if (!request.stored.empty() && is_usable(job, backend, request)) {
    const auto& fingerprint = job.start.resumed->fingerprint;
    const auto then = fingerprint.find("kernels");
    if (fixed && then != fingerprint.end() && then->second != backend.ops().traits().arithmetic) {
      log_warning(
          "the checkpoint was computed by {}, this run is by {}; the bits may no longer be those of an "
          "uninterrupted run",
          then->second, backend.ops().traits().arithmetic);
    }
    return {request.stored, "from the checkpoint"};
  }
  const bool described = job.device.described.has_value();
  if (fixed || described) {
    return {to_text(plan_layouts(backend, stages, ChoiceMode::expected)),
            described ? "the kernels that cuDNN expects to be the fastest, neither timed nor tried" : "by fixed rules"};
  }
  if (const std::optional<std::string> text = plan_cache_of(job).find(PlanCache::key(backend.ops(), stages))) {
    try {
      const LayoutPlan plan = layout_plan_from_text(*text, stages);
      return {to_text(rescaled(plan, 1, request.config.batch)), "from the cache"};
    } catch (const Error& unreadable) {
      log_info("the cached plan is from another version of the program; timing the kernels again ({})",
               unreadable.what());
    }
  }
  return {};
}

// Collective: the plan of the fastest kernels, on rank 0.
ChosenPlan time_plan(const MpiSession& session, const Job& job, Backend& backend, const PlanRequest& request) {
  const double begin = now();
  const std::vector<Stage>& stages = request.stages;
  const TimedKernels timed = time_kernels(session, job.ranks, job.device, backend.ops(), stages);
  if (job.rank() != 0) return {};
  const LayoutPlan plan = plan_layouts(backend.ops(), stages, timed.queries, timed.answers);
  plan_cache_of(job).store(PlanCache::key(backend.ops(), stages), to_text(rescaled(plan, request.config.batch, 1)));
  const std::string sharing = timed.ranks == 1 ? "" : fmt::format(" by {} ranks", timed.ranks);
  return {to_text(plan), fmt::format("timed in {}{}", format_duration(now() - begin), sharing)};
}

}  // namespace

ChosenPlan choose_plan(const MpiSession& session, const Job& job, Backend& backend, const PlanRequest& request) {
  ChosenPlan found =
      together(session, [&] { return job.rank() == 0 ? find_plan(job, backend, request) : ChosenPlan{}; });
  ChosenPlan chosen{job.ranks.broadcast_text(found.text, 0), ""};
  if (chosen.text.empty()) {
    found = time_plan(session, job, backend, request);
    chosen.text = job.ranks.broadcast_text(found.text, 0);
  }
  chosen.origin = job.ranks.broadcast_text(found.origin, 0);
  return chosen;
}

}  // namespace ddp
