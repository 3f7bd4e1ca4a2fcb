#include "explain/verdict.h"

#include <algorithm>

#include "explain/findings.h"
#include "explain/probed_cures.h"

namespace ddp {

const char* cause_name(Cause cause) {
  switch (cause) {
    case Cause::none:
      return "nothing is wrong";
    case Cause::input:
      return "input-bound";
    case Cause::root_reduction:
      return "communication-bound (root reduction)";
    case Cause::bandwidth:
      return "communication-bound (bandwidth)";
    case Cause::latency:
      return "communication-bound (latency)";
    case Cause::late_bucket:
      return "communication-bound (one late bucket)";
    case Cause::small_batch:
      return "batch too small per rank";
    case Cause::launch:
      return "launch-bound";
    case Cause::pipeline:
      return "pipeline";
    case Cause::straggler:
      return "straggler";
    case Cause::uneven_shards:
      return "uneven shards";
    case Cause::evaluation:
      return "evaluation on the critical path";
    case Cause::checkpoint:
      return "checkpoints on the critical path";
    case Cause::oversubscribed:
      return "oversubscribed cores";
    case Cause::throttled:
      return "throttled GPU";
  }
  return "";
}

std::string Cure::text() const {
  std::string text;
  for (const auto& [key, value] : options) text += fmt::format("{}--{} {}", text.empty() ? "" : " ", key, value);
  return text;
}

Explanation explain(const RunTiming& timing, const Options& options, const StepProbe& probe) {
  const RunView view(timing, options);
  std::vector<FoundCause> findings = find_causes(view);
  std::stable_sort(findings.begin(), findings.end(),
                   [](const FoundCause& a, const FoundCause& b) { return a.share > b.share; });
  Explanation result;
  result.model = view.model;
  result.pipeline = timing.facts.pipeline.stages > 1;
  result.images_per_second = view.images_per_second();
  if (findings.empty()) {
    result.headline = fmt::format("the devices compute {} of the time", percent(view.share(view.model.compute)));
    result.evidence = compute_evidence(view);
    return result;
  }
  FoundCause& first = findings.front();
  result.cause = first.cause;
  result.headline = first.headline;
  result.evidence = first.evidence;
  for (Cure& cure : first.cures) use_probe(view, probe, cure);
  sort_cures(first.cures);
  result.cures = first.cures;
  result.advice = first.advice;
  for (const std::string& sentence : compute_evidence(view)) result.evidence.push_back(sentence);
  for (std::size_t i = 1; i < findings.size(); ++i) {
    result.also.push_back(fmt::format("{}: {}", cause_name(findings[i].cause), findings[i].headline));
  }
  return result;
}

namespace {

std::string milliseconds(double seconds) {
  return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.01 ? 3 : seconds < 1 ? 2 : 0);
}

std::string gain_text(const Cure& cure) {
  return fmt::format("{}{:.2f}x images/s{}", cure.lower_bound ? "at least " : "", cure.speedup,
                     cure.changes_training ? ", but it changes the training" : "");
}

}  // namespace

std::string describe(const Explanation& found) {
  std::string text = fmt::format("verdict: {}: {}\n", cause_name(found.cause), found.headline);
  for (const std::string& sentence : found.evidence) text += fmt::format("  {}\n", sentence);
  for (const std::string& other : found.also) text += fmt::format("also: {}\n", other);
  text += fmt::format(
      "a step takes {}, {:.0f} images/s: {} data wait, {} compute, {} communication, {} waiting for "
      "{}, {} optimizer, {} other, {} evaluation, {} checkpoints\n",
      milliseconds(found.model.seconds()), found.images_per_second, milliseconds(found.model.data_wait),
      milliseconds(found.model.compute), milliseconds(found.model.communication), milliseconds(found.model.imbalance),
      found.pipeline ? "other stages" : "slower ranks", milliseconds(found.model.optimizer),
      milliseconds(found.model.other), milliseconds(found.model.evaluation), milliseconds(found.model.checkpoint));
  for (const Cure& cure : found.cures) {
    text += fmt::format("cure: {}: a step of {}{} instead of {}, {} (predicted)\n", cure.text(),
                        cure.lower_bound ? "at most " : "", milliseconds(cure.step_seconds),
                        milliseconds(found.model.seconds()), gain_text(cure));
  }
  if (!found.advice.empty()) text += fmt::format("advice: {}\n", found.advice);
  return text;
}

std::string brief(const Explanation& found) {
  std::string text = fmt::format("{}: {}", cause_name(found.cause), found.headline);
  if (!found.cures.empty()) {
    text += fmt::format("; {} would give {} (predicted)", found.cures[0].text(), gain_text(found.cures[0]));
  } else if (!found.advice.empty()) {
    text += "; " + found.advice;
  }
  return text;
}

}  // namespace ddp
