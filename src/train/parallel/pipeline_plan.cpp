#include "train/parallel/pipeline_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text/text.h"
#include "explain/overlap.h"
#include "gradients/buckets.h"
#include "train/parallel/stage_times.h"

namespace ddp {
namespace {

constexpr double kMeasuredSeconds = 0.2;

// A message between two ranks, and sums over some ranks, from what was measured of a ring over all of them.
class Transfers {
 public:
  // null: nothing is known, and all is free.
  Transfers(const LinkSpeed* link, int ranks) {
    if (link == nullptr || ranks < 2) return;
    latency_ = link->latency / rounds(ranks);
    seconds_per_byte_ = 1 / (link->bandwidth * share(ranks));
  }
  double message(double bytes) const { return latency_ + bytes * seconds_per_byte_; }
  double sum(double bytes, int ranks) const {
    return ranks < 2 ? 0 : latency_ * rounds(ranks) + bytes * share(ranks) * seconds_per_byte_;
  }

 private:
  static double rounds(int ranks) { return 2.0 * (ranks - 1); }
  static double share(int ranks) { return 2.0 * (ranks - 1) / ranks; }  // of the sum, that each rank sends

  double latency_ = 0;
  double seconds_per_byte_ = 0;
};

// What crosses the cut before a stage, once, for a shard.
double crossing_bytes(const std::vector<Stage>& stages, const LayoutPlan& layouts, const PipelineShape& shape,
                      std::size_t stage) {
  const Shape value = output_of(stages[stage - 1].spec);
  const std::int64_t elements = stored_elements(shape.samples, value, layouts.stages[stage - 1].layout);
  return static_cast<double>(elements) * static_cast<double>(shape.element);
}

// How often it crosses: as an activation, and as its gradient unless nothing before the cut is trained.
int crossings(const std::vector<Stage>& stages, std::size_t stage) { return stages[stage - 1].backward ? 2 : 1; }

// Whose gradients are summed, of those in a part of the flat buffer.
std::int64_t trained_elements(const Graph& graph, const Range& held) {
  std::int64_t elements = held.size();
  for (const Parameter& p : graph.parameters()) {
    if (p.frozen && p.offset >= held.begin && p.offset < held.end) elements -= p.flat_elements();
  }
  return elements;
}

double sum_of(std::span<const double> values, std::size_t begin, std::size_t end) {
  return std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(begin),
                         values.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
}

// Where each part ends.
std::size_t end_of(const PipelinePlan& plan, std::size_t part, std::size_t stages) {
  return part + 1 < plan.first.size() ? plan.first[part + 1] : stages;
}

std::string names_of(const std::vector<Stage>& stages, std::size_t begin, std::size_t end) {
  const std::string& first = stages[begin].name;
  return end == begin + 1 ? first : fmt::format("{} to {}", first, stages[end - 1].name);
}

// The sums of the buckets of a step whose passes take so long, as they become ready in the last backward pass.
std::vector<QueuedSum> queued_sums(const Graph& graph, const std::vector<Stage>& stages, const StageSeconds& seconds,
                                   double passes, const Transfers& transfers, const PipelineShape& shape) {
  std::vector<std::size_t> sizes;
  std::vector<bool> frozen;
  for (const Parameter& p : graph.parameters()) {
    sizes.push_back(static_cast<std::size_t>(p.flat_elements()));
    frozen.push_back(p.frozen);
  }
  std::vector<QueuedSum> sums;
  for (const Bucket& bucket :
       plan_buckets(sizes, std::min(kFirstBucketBytes, shape.bucket_bytes), shape.bucket_bytes, frozen)) {
    double left = 0;  // of backward when the bucket is ready
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const bool before = std::none_of(stages[s].parameters.begin(), stages[s].parameters.end(),
                                       [&](int p) { return static_cast<std::size_t>(p) >= bucket.first_parameter; });
      if (!before) break;
      left += seconds.backward[s];
    }
    const double bytes = static_cast<double>(bucket.elements() * shape.gradient);
    sums.push_back({shape.overlaps ? 1 - left / passes : 1, transfers.sum(bytes, shape.ranks)});
  }
  return sums;
}

StepEstimate estimate_data_parallel(const Graph& graph, const std::vector<Stage>& stages, const StageSeconds& seconds,
                                    const Transfers& transfers, const PipelineShape& shape) {
  const double shard = sum_of(seconds.forward, 0, stages.size()) + sum_of(seconds.backward, 0, stages.size());
  const double passes = shard * static_cast<double>((shape.shards + shape.ranks - 1) / shape.ranks);
  StepEstimate estimate;
  estimate.seconds = passes + exposed_sums(queued_sums(graph, stages, seconds, passes, transfers, shape), passes);
  estimate.gradient_bytes = 2.0 * (shape.ranks - 1) *
                            static_cast<double>(trained_elements(graph, {0, graph.flat_elements()})) *
                            static_cast<double>(shape.gradient);
  return estimate;
}

StepEstimate estimate_pipeline(const PipelinePlan& plan, const Graph& graph, const std::vector<Stage>& stages,
                               const LayoutPlan& layouts, const StageSeconds& seconds, const Transfers& transfers,
                               const PipelineShape& shape) {
  StepEstimate estimate;
  std::vector<double> parts = plan.seconds;
  double through = std::accumulate(parts.begin(), parts.end(), 0.0);  // of one shard through all parts
  for (std::size_t part = 1; part < parts.size(); ++part) {
    const double bytes = crossing_bytes(stages, layouts, shape, plan.first[part]);
    const int times = crossings(stages, plan.first[part]);
    const double moved = times * transfers.message(bytes);
    parts[part - 1] += moved;
    parts[part] += moved;
    through += moved;
    estimate.activation_bytes += times * bytes * shape.shards;
  }
  estimate.seconds = through + (shape.micro_batches() - 1) * *std::max_element(parts.begin(), parts.end());
  // The sum of a part's gradient begins when its last backward pass ends, while those of the parts before go on.
  double slack = 0;
  double exposed = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const double bytes =
        static_cast<double>(trained_elements(graph, plan.held[part])) * static_cast<double>(shape.gradient);
    exposed = std::max(exposed, transfers.sum(bytes, shape.replicas()) - slack);
    slack += sum_of(seconds.backward, plan.first[part], end_of(plan, part, stages.size()));
    estimate.gradient_bytes += 2.0 * (shape.replicas() - 1) * bytes;
  }
  estimate.seconds += exposed;
  return estimate;
}

}  // namespace

StageSeconds measure_stages(Backend& backend, const Graph& graph, const NetworkConfig& config, const LayoutPlan& plan) {
  NetworkConfig whole = config;
  whole.forward_only = false;
  whole.stages = {};
  Network network(backend, graph, whole, plan);
  const Memory parameters = backend.memory().allocate(static_cast<std::size_t>(graph.flat_elements()) * sizeof(float),
                                                      "the parameters of timed passes");
  StageSeconds seconds;
  seconds.forward.resize(plan.stages.size());
  seconds.backward.resize(plan.stages.size());
  seconds.joined.resize(plan.stages.size());
  for (const StageTime& time :
       time_stages(backend, network, parameters.at<float>(0), graph.statistic_count(), kMeasuredSeconds)) {
    const auto first = static_cast<std::size_t>(time.work.stages.begin);
    seconds.forward[first] += time.forward_seconds;
    seconds.backward[first] += time.backward_seconds;
    for (auto s = first + 1; s < static_cast<std::size_t>(time.work.stages.end); ++s) seconds.joined[s] = true;
  }
  return seconds;
}

void check_parts(const Graph& graph, const std::vector<Cut>& cuts, int parts) {
  const std::size_t most = most_parts(graph.flat_elements(), cuts);
  check(static_cast<std::size_t>(parts) <= most, ExitCode::usage,
        "--pipeline {}: the network can be cut into {} at most, where a single activation goes from one layer to the "
        "next "
        "and each part has weights; use a smaller number of stages",
        parts, counted(most, "stage"));
}

PipelinePlan plan_pipeline(const Graph& graph, const std::vector<Stage>& stages, const LayoutPlan& layouts,
                           const StageSeconds& seconds, const LinkSpeed* link, const PipelineShape& shape) {
  const Transfers transfers(link, shape.ranks);
  std::vector<double> both(stages.size());
  for (std::size_t s = 0; s < stages.size(); ++s) both[s] = seconds.forward[s] + seconds.backward[s];
  std::vector<Cut> cuts;
  for (Cut cut : possible_cuts(graph, stages)) {
    if (seconds.joined[cut.stage]) continue;
    cut.seconds = crossings(stages, cut.stage) * transfers.message(crossing_bytes(stages, layouts, shape, cut.stage));
    cuts.push_back(cut);
  }
  PipelinePlan plan;
  plan.link_known = link != nullptr;
  check_parts(graph, cuts, shape.stages);
  const auto possible = [&](std::size_t stage) {
    return stage == 0 || std::any_of(cuts.begin(), cuts.end(), [&](const Cut& cut) { return cut.stage == stage; });
  };
  const bool stored =
      shape.first.size() == static_cast<std::size_t>(shape.stages) && shape.first[0] == 0 &&
      std::adjacent_find(shape.first.begin(), shape.first.end(), std::greater_equal<>()) == shape.first.end() &&
      std::all_of(shape.first.begin(), shape.first.end(), possible);
  plan.first =
      stored ? shape.first : balanced_cuts(both, graph.flat_elements(), cuts, static_cast<std::size_t>(shape.stages));
  DDP_ASSERT(!plan.first.empty());
  for (std::size_t part = 0; part < plan.first.size(); ++part) {
    const std::size_t begin = plan.first[part];
    const std::size_t end = end_of(plan, part, stages.size());
    plan.names.push_back(names_of(stages, begin, end));
    plan.seconds.push_back(sum_of(both, begin, end));
    plan.held.push_back(
        parameters_of(graph, stages, {static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)}));
  }
  plan.pipeline = estimate_pipeline(plan, graph, stages, layouts, seconds, transfers, shape);
  plan.data_parallel = estimate_data_parallel(graph, stages, seconds, transfers, shape);
  return plan;
}

std::string pipeline_text(const PipelinePlan& plan, const PipelineShape& shape) {
  std::vector<std::string> times;
  for (const double seconds : plan.seconds) times.push_back(fmt::format("{:.3g}", seconds * 1e3));
  const auto number = [](int count, const char* what) { return counted(static_cast<std::uint64_t>(count), what); };
  return fmt::format("{} x {}, {} micro-batch{} each: {}; {} ms per micro-batch", number(shape.stages, "stage"),
                     number(shape.replicas(), "replica"), shape.micro_batches(), shape.micro_batches() == 1 ? "" : "es",
                     join(plan.names, " | "), join(times, " | "));
}

std::string estimate_text(const PipelinePlan& plan, const PipelineShape& shape) {
  const auto bytes = [](double count) { return format_bytes(static_cast<std::uint64_t>(count)); };
  const double bubble = static_cast<double>(shape.stages - 1) / (shape.micro_batches() + shape.stages - 1);
  const StepEstimate& own = plan.pipeline;
  const StepEstimate& other = plan.data_parallel;
  const std::string verdict = other.seconds < own.seconds ? "data parallel would be faster" : "the pipeline is faster";
  return fmt::format(
      "{:.3g} ms per step, at best {:.0f}% of it waiting, {} of activations and {} of gradients sent; data parallel "
      "{:.3g} "
      "ms and {} of gradients: {}{}",
      own.seconds * 1e3, 100 * bubble, bytes(own.activation_bytes), bytes(own.gradient_bytes), other.seconds * 1e3,
      bytes(other.gradient_bytes), verdict,
      plan.link_known ? "" : " if sending takes no time; start plan on the ranks of the run to measure that");
}

}  // namespace ddp
