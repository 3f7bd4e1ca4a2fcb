#include "train/choose_plan.h"

#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/text.h"
#include "job/report.h"
#include "train/experiment.h"
#include "train/plan_cache.h"
#include "train/resume.h"
#include "train/time_kernels.h"

namespace ddp {
namespace {

// Of rank 0. None with --deterministic, where the rules of the kernels are fast, and for a GPU that is only described.
PlanCache plan_cache_of(const Experiment& e) {
  const bool timed = !e.options.optimizer.deterministic && !e.device.described.has_value();
  return PlanCache(timed ? plan_cache_directory(e.options) : std::nullopt);
}

// The same plan with the times of `to` samples instead of `from`.
LayoutPlan rescaled(LayoutPlan plan, std::int64_t from, std::int64_t to) {
  plan.predicted_seconds *= static_cast<double>(to) / static_cast<double>(from);
  return plan;
}

// Whether the kernels of the checkpoint's plan are available; another machine or version of oneDNN may lack some.
bool is_usable(Experiment& e, const PlanRequest& request) {
  NetworkConfig config = request.config;
  config.plan_only = true;
  try {
    (void)Network(*e.backend, request.graph, config, layout_plan_from_text(request.stored, request.stages));
    return true;
  } catch (const Error& error) {
    if (error.code() != ExitCode::preflight) throw;
    const std::string changed = changed_kernel_options(*request.resumed, e.options);
    if (changed.empty()) {
      log_warning(
          "kernels of the checkpoint are not available here ({}); others are chosen{}", error.what(),
          e.options.optimizer.deterministic ? ", and the bits are no longer those of an uninterrupted run" : "");
    } else {
      log_info("this run has {} of the checkpoint, and its steps need other kernels, which are chosen", changed);
    }
    return false;
  }
}

// On rank 0: the plan of the checkpoint, otherwise of the rules or of the cache; otherwise none.
ChosenPlan find_plan(Experiment& e, const PlanRequest& request) {
  const bool fixed = e.options.optimizer.deterministic;
  const std::vector<Stage>& stages = request.stages;
  if (!request.stored.empty() && is_usable(e, request)) {
    const auto& fingerprint = request.resumed->fingerprint;
    const auto then = fingerprint.find("kernels");
    if (fixed && then != fingerprint.end() && then->second != e.backend->ops().arithmetic()) {
      log_warning(
          "the checkpoint was computed by {}, this run is by {}; the bits may no longer be those of an "
          "uninterrupted run",
          then->second, e.backend->ops().arithmetic());
    }
    return {request.stored, "from the checkpoint"};
  }
  const bool described = e.device.described.has_value();
  if (fixed || described) {
    return {to_text(plan_layouts(*e.backend, stages, ChoiceMode::expected)),
            described ? "the kernels that cuDNN expects to be the fastest, neither timed nor tried" : "by fixed rules"};
  }
  if (const std::optional<std::string> text = plan_cache_of(e).find(PlanCache::key(e.backend->ops(), stages))) {
    try {
      const LayoutPlan plan = layout_plan_from_text(*text, stages);
      return {to_text(rescaled(plan, 1, e.batch.per_shard)), "from the cache"};
    } catch (const Error& unreadable) {
      log_info("the cached plan is from another version of the program; timing the kernels again ({})",
               unreadable.what());
    }
  }
  return {};
}

// Collective: the plan of the fastest kernels, on rank 0.
ChosenPlan time_plan(const MpiSession& session, Communicator& ranks, Experiment& e, const std::vector<Stage>& stages) {
  const double begin = now();
  const TimedKernels timed = time_kernels(session, ranks, e.device, e.backend->ops(), stages);
  if (ranks.rank() != 0) return {};
  const LayoutPlan plan = plan_layouts(e.backend->ops(), stages, timed.queries, timed.answers);
  plan_cache_of(e).store(PlanCache::key(e.backend->ops(), stages), to_text(rescaled(plan, e.batch.per_shard, 1)));
  const std::string sharing = timed.ranks == 1 ? "" : fmt::format(" by {} ranks", timed.ranks);
  return {to_text(plan), fmt::format("timed in {}{}", format_duration(now() - begin), sharing)};
}

}  // namespace

ChosenPlan choose_plan(const MpiSession& session, Communicator& ranks, Experiment& e, const PlanRequest& request) {
  ChosenPlan found = together(session, [&] { return session.rank() == 0 ? find_plan(e, request) : ChosenPlan{}; });
  ChosenPlan chosen{ranks.broadcast_text(found.text, 0), ""};
  if (chosen.text.empty()) {
    found = time_plan(session, ranks, e, request.stages);
    chosen.text = ranks.broadcast_text(found.text, 0);
  }
  chosen.origin = ranks.broadcast_text(found.origin, 0);
  return chosen;
}

}  // namespace ddp
