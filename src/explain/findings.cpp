#include "explain/findings.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "base/text/text.h"
#include "explain/rank_findings.h"

namespace ddp {
namespace {

// Shares of a step from which something counts as a cause.
constexpr double kMuchWaiting = 0.15;  // data wait, evaluation, checkpoints
constexpr double kMuchNetwork = 0.2;   // exposed communication
constexpr double kMuchFixed = 0.3;     // work that does not grow with the batch
constexpr double kMuchHost = 0.25;     // the host's own time beside a GPU
// Sums between processes of a host exceed this; slower ones cross a network. Bytes per second.
constexpr double kFastLink = 500e6;
// The share of the gradients that linear layers must have for their division to be a cure.
constexpr double kMuchDivided = 0.5;
// Buckets below this size are bound by latency.
constexpr double kShortBucket = 64 << 10;
// How much larger the batch is that is proposed, how much rarer evaluations and checkpoints.
constexpr std::int64_t kLargerBatch = 4;
constexpr std::int64_t kRarer = 10;
constexpr std::int64_t kMostWorkers = 16;

std::string ms(double seconds) { return fmt::format("{:.3g} ms", seconds * 1e3); }

std::string rate_text(double bytes_per_second) {
  return fmt::format("{}/s", format_bytes(static_cast<std::uint64_t>(bytes_per_second)));
}

Cure larger_batch(const RunView& view) {
  const StepModel& m = view.model;
  const std::int64_t per_rank = view.timing.facts.global_batch / view.ranks * kLargerBatch;
  const auto factor = static_cast<double>(kLargerBatch);
  Cure cure;
  cure.options = {{"batch-per-rank", std::to_string(per_rank)}};
  cure.step_seconds = with_batch(view.timing, m, factor, factor * m.compute).seconds();
  cure.speedup = factor * m.seconds() / cure.step_seconds;
  cure.changes_training = true;
  cure.lower_bound = true;  // it also computes an image faster
  return cure;
}

void find_input(const RunView& view, std::vector<FoundCause>& found) {
  const StepModel& m = view.model;
  if (view.share(m.data_wait) < kMuchWaiting || one_slow_loader(view)) return;
  const RunFacts& facts = view.timing.facts;
  double busy = 0;
  double ready = 0;
  double batches = 0;
  for (std::size_t r = 0; r < view.timing.ranks.size(); ++r) {
    if (!view.loads(r)) continue;
    const RankTiming& rank = view.timing.ranks[r];
    busy = std::max(busy, rank.loader.busy_seconds / std::max(1.0, rank.loader.batches));
    ready += rank.loader.ready;
    batches += rank.loader.batches;
  }
  FoundCause finding{.cause = Cause::input, .share = view.share(m.data_wait)};
  finding.headline = fmt::format("the ranks wait for data {} of the time", percent(finding.share));
  finding.evidence.push_back(fmt::format("loading a batch takes {} of one worker; the rest of the step takes {}",
                                         ms(busy), ms(m.seconds() - m.data_wait)));
  if (facts.workers > 0) {
    finding.evidence.push_back(fmt::format("{} per rank; when a step begins, {:.1f} of {} batches are ready",
                                           counted(static_cast<std::uint64_t>(facts.workers), "worker"),
                                           ready / std::max(1.0, batches), view.options.data.prefetch + 1));
  } else {
    finding.evidence.emplace_back("without workers (--workers 0) each rank reads its batch within the step");
  }
  // Without data wait the ranks wait less for one another, too: in proportion to what each does by itself.
  StepModel cured = m;
  cured.data_wait = 0;
  cured.imbalance *= cured.own() / m.own();
  const double rest = cured.training();
  const double shortest = cpu_floor(view.timing);
  const auto enough = static_cast<std::int64_t>(std::ceil(1.1 * busy / std::max({1e-9, rest, shortest})));
  const std::int64_t workers = std::clamp<std::int64_t>(enough, facts.workers + 1, kMostWorkers);
  const double loading = std::max(predicted_data_wait(busy, workers, rest), shortest - rest);
  cured.data_wait = std::clamp(loading, 0.0, m.data_wait);
  if (facts.workers < kMostWorkers) {
    finding.cures.push_back(view.cure({{"workers", std::to_string(workers)}}, cured));
    if (shortest >= cured.training()) {
      finding.evidence.emplace_back("even more workers gain nothing, since the cores are busy then");
    }
  }
  finding.advice = "put the data on a faster disk; for image folders --image-cache DIR stores decoded images";
  found.push_back(std::move(finding));
}

FoundCause communication(const RunView& view, Cause cause) {
  FoundCause finding{.cause = cause, .share = view.share(view.model.communication)};
  finding.headline =
      fmt::format("{} of a step is communication that nothing hides", percent(view.share(view.model.communication)));
  if (view.link.seconds > 0) {
    finding.evidence.push_back(fmt::format(
        "{} of gradients in {} take {} at their fastest: {}", format_bytes(static_cast<std::uint64_t>(view.link.bytes)),
        counted(view.timing.buckets.size(), "bucket"), ms(view.link.seconds), rate_text(view.link.bandwidth)));
  }
  return finding;
}

// Linear layers that hold most of the parameters send less if they are divided among the ranks.
void add_divided_layers(const RunView& view, FoundCause& finding) {
  const DivisibleLayers& layers = view.timing.facts.divisible;
  const Options& options = view.options;
  const bool possible = !options.optimizer.deterministic && !options.batch.balance &&
                        options.optimizer.optimizer != UpdateRule::muon && !splits_linear(options.distributed);
  const auto ranks = static_cast<double>(view.ranks);
  const double sent = 2 * (ranks - 1) / ranks * view.link.bytes;
  if (layers.names.empty() || !possible || layers.gradients < kMuchDivided * sent) return;
  const auto bytes = [](double count) { return format_bytes(static_cast<std::uint64_t>(count)); };
  finding.evidence.push_back(fmt::format(
      "of {} that a rank sends in a step, {} are gradients of {}; divided among the ranks, {} of activations instead",
      bytes(sent), bytes(layers.gradients), join(layers.names), bytes(layers.activations)));
  finding.cures.push_back(
      view.cure({{"split-linear", join(layers.names, ",")}}, with_divided_layers(view.timing, view.model)));
}

void add_bandwidth_cures(const RunView& view, FoundCause& finding) {
  const StepModel& m = view.model;
  add_divided_layers(view, finding);
  if (view.options.distributed.gradient_precision == GradientPrecision::fp32 && !view.options.optimizer.deterministic) {
    StepModel cured = m;
    cured.communication /= 2;
    finding.cures.push_back(view.cure({{"gradient-precision", "bf16"}}, cured));
    finding.cures.back().changes_training = true;
  }
  finding.cures.push_back(larger_batch(view));
  finding.advice = "'ddp_train check' on the same hosts measures each link";
}

// A bucket that becomes ready last cannot be hidden; if it is most of the gradient, smaller buckets help.
bool has_late_bucket(const RunView& view) {
  const std::size_t count = view.timing.buckets.size();
  if (!view.timing.facts.overlaps || count < 2) return false;
  const double last = view.timing.buckets.back().shortest;
  return last > 0.5 * view.link.seconds && last > 0.6 * view.model.communication;
}

void find_network(const RunView& view, std::vector<FoundCause>& found) {
  const StepModel& m = view.model;
  if (view.ranks < 2 || view.share(m.communication) < kMuchNetwork || slowest_lacks_core(view)) return;
  const RunFacts& facts = view.timing.facts;
  if (facts.reduction == "root") {
    FoundCause finding = communication(view, Cause::root_reduction);
    // Every other rank sends all of the gradient to rank 0 and receives all of it; in a ring each rank sends and receives
    // 2 (N-1)/N of it at the same time.
    StepModel cured = m;
    cured.communication =
        std::max(0.0, m.communication - view.link.seconds * (1 - 1 / static_cast<double>(view.ranks)));
    finding.evidence.push_back(fmt::format("--reduction root sends the gradients of {} through rank 0",
                                           counted(static_cast<std::uint64_t>(view.ranks - 1), "other rank")));
    finding.cures.push_back(view.cure({{"reduction", "ring"}}, cured));
    found.push_back(std::move(finding));
    return;
  }
  if (view.link.bandwidth >= kFastLink) return;  // see find_small_batch()
  if (sums_lack_cores(view)) return;             // see find_oversubscription()
  if (has_late_bucket(view)) {
    FoundCause finding = communication(view, Cause::late_bucket);
    const double bytes = facts.bucket_bytes.back();
    finding.evidence.push_back(fmt::format("the last of {} holds {} and is ready only when backward ends",
                                           counted(facts.bucket_bytes.size(), "bucket"),
                                           format_bytes(static_cast<std::uint64_t>(bytes))));
    constexpr double kParts = 4;
    StepModel cured = m;
    cured.communication -= (1 - 1 / kParts) * std::min(m.communication, view.timing.buckets.back().shortest);
    finding.cures.push_back(
        view.cure({{"bucket-mib", fmt::format("{:.3g}", std::max(0.001, bytes / kParts / (1 << 20)))}}, cured));
    add_divided_layers(view, finding);
    finding.cures.push_back(larger_batch(view));
    found.push_back(std::move(finding));
    return;
  }
  const double per_bucket = view.link.bytes / std::max<double>(1, static_cast<double>(view.timing.buckets.size()));
  FoundCause finding =
      communication(view, per_bucket > 0 && per_bucket < kShortBucket ? Cause::latency : Cause::bandwidth);
  add_bandwidth_cures(view, finding);
  found.push_back(std::move(finding));
}

void find_small_batch(const RunView& view, std::vector<FoundCause>& found) {
  const StepModel& m = view.model;
  const bool fast = view.ranks < 2 || view.link.bandwidth >= kFastLink;
  const bool lack_cores = sums_lack_cores(view);
  const double host = view.timing.facts.gpu ? 0 : m.other;
  const double fixed = m.optimizer + host + (lack_cores ? 0 : m.communication);
  if ((!fast && !lack_cores) || view.share(fixed) < kMuchFixed || view.timing.facts.reduction == "root") return;
  FoundCause finding{.cause = Cause::small_batch, .share = view.share(fixed)};
  finding.headline = fmt::format("{} of a step does not depend on the batch, which is {} samples per rank",
                                 percent(finding.share), view.timing.facts.samples[0]);
  finding.evidence.push_back(fmt::format("forward and backward take {}, communication {}, the update {}, the host {}",
                                         ms(m.compute), ms(m.communication), ms(m.optimizer), ms(m.other)));
  finding.cures.push_back(larger_batch(view));
  found.push_back(std::move(finding));
}

void find_launch(const RunView& view, std::vector<FoundCause>& found) {
  const StepModel& m = view.model;
  if (!view.timing.facts.gpu || view.share(m.other) < kMuchHost) return;
  FoundCause finding{.cause = Cause::launch, .share = view.share(m.other)};
  finding.headline = fmt::format("the GPU waits for the host {} of the time", percent(finding.share));
  if (view.options.device.cuda_graph == GraphMode::off) {
    StepModel cured = m;
    cured.other *= 0.2;
    finding.cures.push_back(view.cure({{"cuda-graph", "auto"}}, cured));
  }
  finding.cures.push_back(larger_batch(view));
  found.push_back(std::move(finding));
}

void find_pipeline(const RunView& view, std::vector<FoundCause>& found) {
  const StepModel& m = view.model;
  const PipelineFacts& facts = view.timing.facts.pipeline;
  const double lost = m.imbalance + m.communication;
  if (view.share(lost) < kMuchWaiting) return;
  FoundCause finding{.cause = Cause::pipeline, .share = view.share(lost)};
  finding.headline = fmt::format("the stages wait for each other {} of the time", percent(finding.share));
  const PipelineWaits waits = pipeline_waits(view.timing);
  const auto passes = static_cast<double>(facts.micro_batches + facts.stages - 1);
  finding.evidence.push_back(fmt::format(
      "with {} stages and {} micro-batch{} per step, ranks wait {} of the passes even if all stages are equal, "
      "{} of a step",
      facts.stages, facts.micro_batches, facts.micro_batches == 1 ? "" : "es",
      percent(static_cast<double>(facts.stages - 1) / passes), ms(waits.bubble)));
  std::vector<std::string> times;
  for (std::size_t stage = 0; stage < waits.stages.size(); ++stage) {
    times.push_back(fmt::format("{} in {}", ms(waits.stages[stage]), facts.layers[stage]));
  }
  finding.evidence.push_back(fmt::format("forward and backward take {}: {} of waiting for the longest stage",
                                         join(times, ", "), ms(waits.imbalance)));
  finding.evidence.push_back(
      fmt::format("{} of sending, of sums over replicas, and of ranks that are late", ms(waits.rest)));
  StepModel cured = m;
  cured.compute = facts.data_parallel_seconds;
  cured.imbalance = cured.communication = 0;
  if (cured.seconds() < m.seconds()) finding.cures.push_back(view.cure({{"pipeline", "1"}}, cured));
  finding.advice = "more --logical-shards shorten the waiting, but each is a smaller batch";
  found.push_back(std::move(finding));
}

// Something that stops the steps from time to time; nullopt if it does not take long. The `text` is followed by a share.
std::optional<FoundCause> pauses(const RunView& view, Cause cause, double seconds, const char* text) {
  if (view.share(seconds) < kMuchWaiting) return std::nullopt;
  FoundCause finding{.cause = cause, .share = view.share(seconds)};
  finding.headline = fmt::format("{} {} of the time", text, percent(finding.share));
  return finding;
}

std::string each_of(const RunView& view, std::int64_t count, double seconds) {
  return format_duration(seconds * view.model.steps / static_cast<double>(std::max<std::int64_t>(1, count)));
}

void find_evaluation(const RunView& view, std::vector<FoundCause>& found) {
  const StepModel& m = view.model;
  const std::int64_t count = view.timing.evaluations;
  std::optional<FoundCause> finding = pauses(view, Cause::evaluation, m.evaluation, "evaluations take");
  if (!finding) return;
  finding->evidence.push_back(fmt::format("{} of {} each, in {:.0f} steps",
                                          counted(static_cast<std::uint64_t>(count), "evaluation"),
                                          each_of(view, count, m.evaluation), m.steps));
  const OutputOptions& output = view.options.output;
  if (output.eval_every > 0 && count > 1) {
    StepModel cured = m;
    cured.evaluation /= static_cast<double>(kRarer);
    if (output.checkpoint_every > 0) cured.checkpoint /= static_cast<double>(kRarer);
    finding->cures.push_back(view.cure({{"eval-every", std::to_string(output.eval_every * kRarer)}}, cured));
  }
  if (output.eval_on == EvalOn::rank0 && view.ranks > 1) {
    StepModel cured = m;
    cured.evaluation /= static_cast<double>(view.ranks);
    finding->cures.push_back(view.cure({{"eval-on", "all"}}, cured));
  }
  found.push_back(std::move(*finding));
}

void find_checkpoint(const RunView& view, std::vector<FoundCause>& found) {
  const StepModel& m = view.model;
  const std::int64_t count = view.timing.checkpoints;
  std::optional<FoundCause> finding = pauses(view, Cause::checkpoint, m.checkpoint, "the ranks wait for checkpoints");
  if (!finding) return;
  finding->evidence.push_back(fmt::format("{} that each stop the steps for {}",
                                          counted(static_cast<std::uint64_t>(count), "checkpoint"),
                                          each_of(view, count, m.checkpoint)));
  const OutputOptions& output = view.options.output;
  const std::int64_t now = output.checkpoint_every > 0 ? output.checkpoint_every : view.timing.facts.steps_per_epoch;
  StepModel cured = m;
  cured.checkpoint /= static_cast<double>(kRarer);
  std::vector<std::pair<std::string, std::string>> settings = {{"checkpoint-every", std::to_string(now * kRarer)}};
  // Before an evaluation there is a checkpoint.
  if (output.eval_every > 0 && output.eval_every * view.timing.facts.steps_per_epoch < now * kRarer) {
    settings.emplace_back("eval-every", std::to_string(output.eval_every * kRarer));
    cured.evaluation /= static_cast<double>(kRarer);
  }
  finding->cures.push_back(view.cure(std::move(settings), cured));
  finding->advice = "put the run folder on a faster disk";
  found.push_back(std::move(*finding));
}

}  // namespace

Cure RunView::cure(std::vector<std::pair<std::string, std::string>> settings, const StepModel& cured) const {
  Cure cure;
  cure.options = std::move(settings);
  cure.step_seconds = cured.seconds();
  cure.speedup = model.seconds() / cured.seconds();
  return cure;
}

std::vector<FoundCause> find_causes(const RunView& view) {
  using Find = void (*)(const RunView& view, std::vector<FoundCause>& found);
  const std::vector<Find> data_parallel = {find_input,      find_network,    find_small_batch,      find_launch,
                                           find_throttling, find_stragglers, find_oversubscription, find_evaluation,
                                           find_checkpoint};
  // Its stages differ, and wait for each other, by design.
  const std::vector<Find> pipeline = {find_input, find_pipeline, find_oversubscription, find_evaluation,
                                      find_checkpoint};
  std::vector<FoundCause> found;
  for (const Find find : view.timing.facts.pipeline.stages > 1 ? pipeline : data_parallel) find(view, found);
  for (FoundCause& finding : found) sort_cures(finding.cures);
  return found;
}

void sort_cures(std::vector<Cure>& cures) {
  std::stable_sort(cures.begin(), cures.end(), [](const Cure& a, const Cure& b) {
    if (a.changes_training != b.changes_training) return b.changes_training;
    return a.speedup > b.speedup;
  });
}

std::vector<std::string> compute_evidence(const RunView& view) {
  const RunFacts& facts = view.timing.facts;
  std::vector<std::string> evidence;
  if (facts.peak_flops && *facts.peak_flops > 0 && view.model.compute > 0) {
    const double per_step = facts.flops_per_sample * static_cast<double>(facts.global_batch);
    const double peak = *facts.peak_flops * static_cast<double>(view.ranks);
    evidence.push_back(fmt::format("{} of the devices' peak over the whole step, {} while they compute",
                                   percent(per_step / view.model.seconds() / peak),
                                   percent(per_step / view.model.compute / peak)));
  }
  return evidence;
}

}  // namespace ddp
