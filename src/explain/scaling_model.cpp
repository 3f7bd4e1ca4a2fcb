#include "explain/scaling_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <vector>

#include "base/error.h"
#include "explain/overlap.h"

namespace ddp {
namespace {

// The least measured over modelled exposed communication; below, the model does not describe it.
constexpr double kLeastUnhidden = 0.25;
// The greatest part of a sum that is attributed to latency.
constexpr double kMostLatency = 0.8;

// Ranks of a machine that run at the same time; the others wait for a core.
double running_ranks(const ScalingLayout& layout) {
  return std::max(1.0, static_cast<double>(layout.ranks_per_host) / layout.threads_per_core);
}

double average_batch(const ScalingLayout& layout) {
  return static_cast<double>(layout.global_batch) / static_cast<double>(layout.ranks);
}

// The images that the rank with the largest share has more than the average.
double uneven_images(const ScalingLayout& layout) { return std::ceil(average_batch(layout)) - average_batch(layout); }

// Messages of a sum, one after the other, and the gradients that pass the link of one rank, as a multiple of their size.
double rounds_of(std::int64_t ranks, bool root) {
  const auto others = static_cast<double>(ranks - 1);
  return root ? others + std::ceil(std::log2(static_cast<double>(ranks))) : 2 * others;
}
double traffic_of(std::int64_t ranks, bool root) {
  const auto others = static_cast<double>(ranks - 1);
  return root ? 2 * others : 2 * others / static_cast<double>(ranks);
}

// The point with this property that has the most ranks and, among these, the largest batch; null if there is none.
template <class Property>
const ScalingPoint* largest(std::span<const ScalingPoint> points, Property has) {
  const ScalingPoint* found = nullptr;
  const auto size = [](const ScalingPoint& it) { return std::pair(it.layout.ranks, it.layout.global_batch); };
  for (const ScalingPoint& point : points) {
    if (has(point) && (found == nullptr || size(point) > size(*found))) found = &point;
  }
  return found;
}

void fit_one_rank(std::span<const ScalingPoint> points, ScalingModel& model) {
  const ScalingPoint* large = nullptr;
  const ScalingPoint* small = nullptr;
  for (const ScalingPoint& point : points) {
    if (point.layout.ranks != 1) continue;
    if (large == nullptr || point.layout.global_batch > large->layout.global_batch) large = &point;
    if (small == nullptr || point.layout.global_batch < small->layout.global_batch) small = &point;
  }
  DDP_ASSERT(large != nullptr);
  const double batch = large->batch_per_rank();
  const double stretch = large->layout.threads_per_core;
  const double compute = large->step.compute / stretch;
  model.compute_per_image = compute / batch;
  if (small->layout.global_batch < large->layout.global_batch) {
    const double slope = (compute - small->step.compute / stretch) / (batch - small->batch_per_rank());
    // A small batch is not faster for each image: otherwise it was noise.
    if (slope > 0 && slope < model.compute_per_image) {
      model.compute_per_image = slope;
      model.compute_fixed = compute - slope * batch;
    }
  }
  model.optimizer = large->step.optimizer / stretch;
  model.other = large->step.other / stretch;
  model.workers = large->workers;
  model.load_per_image = large->load_seconds / batch;
  const double rest = large->step.training() - large->step.data_wait;
  model.least_wait =
      std::max(0.0, large->step.data_wait - predicted_data_wait(large->load_seconds, large->workers, rest));
}

void fit_host(std::span<const ScalingPoint> points, ScalingModel& model) {
  const auto slower = [&](const ScalingPoint& point) {
    const double alone = model.compute_fixed + model.compute_per_image * point.batch_per_rank();
    return point.step.compute / (model.stretch(point.layout.threads_per_core) * alone) - 1;
  };
  model.core_sharing = 0;
  const ScalingPoint* crowded = largest(points, [](const ScalingPoint& p) {
    return p.layout.ranks > 1 && p.layout.threads_per_core > 1 && running_ranks(p.layout) <= 1;
  });
  model.core_sharing =
      crowded == nullptr ? 1 : std::max(0.0, slower(*crowded) / (crowded->layout.threads_per_core - 1));
  const ScalingPoint* shared = largest(points, [](const ScalingPoint& p) { return running_ranks(p.layout) > 1; });
  if (shared != nullptr) {
    model.host_sharing = std::max(0.0, slower(*shared) / (running_ranks(shared->layout) - 1));
  }
}

void fit_link(const ScalingPoint& point, ScalingModel& model) {
  const std::int64_t ranks = point.layout.ranks;
  model.communicates = true;
  model.overlaps = point.overlaps;
  model.message_seconds = point.message_seconds;
  const double backward_ends = point.step.data_wait + point.step.compute;
  double seconds = 0;
  double bytes = 0;
  for (const BucketSum& sum : point.sums) {
    seconds += sum.seconds;
    bytes += sum.bytes;
    model.bucket_bytes.push_back(sum.bytes);
    model.bucket_ready.push_back(point.overlaps && backward_ends > 0 ? std::clamp(sum.ready / backward_ends, 0.0, 1.0)
                                                                     : 1);
  }
  // Sums that the host does not see are one that begins when backward has ended.
  if (seconds <= 0) seconds = point.step.communication;
  const double messages = rounds_of(ranks, model.root) * std::max<double>(1, static_cast<double>(point.sums.size()));
  model.message_seconds = std::min(model.message_seconds, kMostLatency * seconds / messages);
  const double moving = seconds - messages * model.message_seconds;
  if (bytes > 0 && moving > 0) model.bandwidth = traffic_of(ranks, model.root) * bytes / moving;
}

// The fastest sums of the buckets over this many ranks.
std::vector<QueuedSum> queued_sums(const ScalingModel& model, std::int64_t ranks) {
  std::vector<QueuedSum> sums;
  for (std::size_t i = 0; i < model.bucket_bytes.size(); ++i) {
    sums.push_back({model.bucket_ready[i], model.sum_seconds(i, ranks)});
  }
  return sums;
}

void fit_exposed(const ScalingPoint& point, ScalingModel& model) {
  const double backward_ends = point.step.data_wait + point.step.compute;
  const std::vector<QueuedSum> sums = queued_sums(model, point.layout.ranks);
  const double modelled = exposed_sums(sums, backward_ends);
  const double measured = point.step.communication;
  if (measured > modelled) {
    model.delay = delay_of_sums(sums, backward_ends, measured) / model.stretch(point.layout.threads_per_core);
  } else {
    model.unhidden = modelled > 0 ? std::max(measured / modelled, kLeastUnhidden) : 1;
  }
  const double stretch = model.stretch(point.layout.threads_per_core);
  // Less than one rank takes only where the ranks of a host divide it.
  const double of_rank = point.step.optimizer / stretch;
  const double here = static_cast<double>(point.layout.ranks_per_host);
  if (of_rank < model.optimizer && here > 1) {
    model.divided_optimizer = std::min(model.optimizer, (model.optimizer - of_rank) / (1 - 1 / here));
    model.optimizer -= model.divided_optimizer;
  } else {
    model.optimizer = std::max(model.optimizer, of_rank);
  }
  model.other = std::max(model.other, point.step.other / stretch);
}

// How long a rank waits for slower ones beyond their uneven shares, as a share of its own time.
double waiting_share(const ScalingPoint& point, const ScalingModel& model) {
  const double own = point.step.data_wait + point.step.compute + point.step.optimizer + point.step.other;
  return std::max(0.0, point.step.imbalance - uneven_images(point.layout) * model.compute_per_image) / own;
}

// Random variation is that of ranks with a core each, where some were measured. What those that share cores wait beyond it
// is for their turns, and does not grow with the number of ranks.
void fit_imbalance(const ScalingPoint& alone, const ScalingPoint& crowded, ScalingModel& model) {
  model.jitter = waiting_share(alone, model) / expected_maximum(alone.layout.ranks);
  const double further = crowded.layout.threads_per_core - alone.layout.threads_per_core;
  if (further <= 0) return;
  model.core_turns = (waiting_share(crowded, model) - model.jitter * expected_maximum(crowded.layout.ranks)) / further;
}

}  // namespace

ScalingPoint scaling_point(const RunTiming& timing, double message_seconds) {
  const RunFacts& facts = timing.facts;
  ScalingPoint point;
  point.layout.ranks = static_cast<std::int64_t>(timing.ranks.size());
  point.layout.global_batch = facts.global_batch;
  std::map<std::int64_t, std::int64_t> ranks;
  std::map<std::int64_t, std::int64_t> threads;
  for (std::size_t rank = 0; rank < timing.ranks.size(); ++rank) {
    const std::int64_t machine = facts.machines[rank];
    threads[machine] += facts.threads[rank];
    point.layout.ranks_per_host = std::max(point.layout.ranks_per_host, ++ranks[machine]);
    const RankTiming& each = timing.ranks[rank];
    point.load_seconds = std::max(point.load_seconds, each.loader.busy_seconds / std::max(1.0, each.loader.batches));
  }
  for (std::size_t rank = 0; rank < timing.ranks.size() && !facts.gpu; ++rank) {
    const auto cpus = static_cast<double>(std::max<std::int64_t>(1, facts.cpus[rank]));
    point.layout.threads_per_core =
        std::max(point.layout.threads_per_core, static_cast<double>(threads[facts.machines[rank]]) / cpus);
  }
  point.hosts = static_cast<std::int64_t>(std::set(facts.hosts.begin(), facts.hosts.end()).size());
  point.step = step_model(timing);
  point.workers = facts.workers;
  point.message_seconds = message_seconds;
  point.overlaps = facts.overlaps;
  point.gpu = facts.gpu;
  if (point.layout.ranks < 2) return point;
  for (std::size_t i = 0; i < facts.bucket_bytes.size(); ++i) {
    const BucketTiming seen = i < timing.buckets.size() ? timing.buckets[i] : BucketTiming{};
    point.sums.push_back({facts.bucket_bytes[i], seen.ready, seen.shortest});
  }
  return point;
}

double ScalingModel::sum_seconds(std::size_t bucket, std::int64_t ranks) const {
  if (ranks < 2) return 0;
  const double moving = bandwidth > 0 ? traffic_of(ranks, root) * bucket_bytes[bucket] / bandwidth : 0;
  return rounds_of(ranks, root) * message_seconds + moving;
}

StepModel ScalingModel::predict(const ScalingLayout& layout) const {
  StepModel step;
  step.steps = 1;
  const double images = average_batch(layout);
  const double stretch = this->stretch(layout.threads_per_core);
  const double sharing = 1 + host_sharing * (running_ranks(layout) - 1);
  step.compute = stretch * sharing * (compute_fixed + compute_per_image * images);
  step.optimizer = stretch * (optimizer + divided_optimizer / static_cast<double>(layout.ranks_per_host));
  step.other = stretch * other;
  const double busy = step.compute + step.optimizer + step.other;
  if (layout.ranks > 1) {
    const double wait = least_wait + predicted_data_wait(stretch * load_per_image * images, workers, busy);
    step.communication =
        unhidden * exposed_sums(queued_sums(*this, layout.ranks), wait + step.compute, stretch * delay);
    const double turns = core_turns * (layout.threads_per_core - 1);
    step.imbalance = std::max(0.0, jitter * expected_maximum(layout.ranks) + turns) * (busy + wait) +
                     stretch * sharing * uneven_images(layout) * compute_per_image;
  }
  // Workers read ahead during communication as well.
  const double rest = busy + step.communication + step.imbalance;
  step.data_wait = least_wait + predicted_data_wait(stretch * load_per_image * images, workers, rest);
  return step;
}

ScalingModel fit_scaling(std::span<const ScalingPoint> points, bool root) {
  ScalingModel model;
  model.root = root;
  fit_one_rank(points, model);
  fit_host(points, model);
  const auto several = [](const ScalingPoint& point) { return point.layout.ranks > 1; };
  if (const ScalingPoint* most = largest(points, several)) {
    fit_link(*most, model);
    // Sums wait longer where ranks share cores.
    double crowding = 1;
    for (const ScalingPoint& point : points) {
      if (several(point)) crowding = std::max(crowding, point.layout.threads_per_core);
    }
    const auto with = [&](double threads_per_core) {
      return largest(
          points, [&](const ScalingPoint& p) { return several(p) && p.layout.threads_per_core == threads_per_core; });
    };
    const ScalingPoint& crowded = *with(crowding);
    fit_exposed(crowded, model);
    const ScalingPoint* alone = with(1);
    fit_imbalance(alone != nullptr ? *alone : crowded, crowded, model);
  }
  return model;
}

Lost lost_time(const ScalingPoint& point, const ScalingPoint& one, const ScalingModel& model) {
  const StepModel& step = point.step;
  // The part of a step of one rank that has the images of a rank.
  const double part = point.batch_per_rank() / one.batch_per_rank();
  const bool same_batch = point.layout.ranks == 1 || std::abs(part - 1) < 1e-9;
  const double alone = same_batch ? one.step.compute
                                  : one.step.compute *
                                        (model.compute_fixed + model.compute_per_image * point.batch_per_rank()) /
                                        (model.compute_fixed + model.compute_per_image * one.batch_per_rank());
  Lost lost;
  lost.communication = step.communication - part * one.step.communication;
  lost.slower_ranks = step.imbalance - part * one.step.imbalance;
  lost.input = step.data_wait - part * one.step.data_wait;
  lost.smaller_batch = alone - part * one.step.compute;
  lost.shared_host = step.compute - alone;
  lost.update = step.optimizer + step.other - part * (one.step.optimizer + one.step.other);
  return lost;
}

double expected_maximum(std::int64_t n) {
  if (n < 2) return 0;
  constexpr double kStep = 0.01;
  constexpr double kFar = 9;
  // The integral of 1 - P(max <= x) over x > 0, less that of P(max <= x) over x < 0.
  double sum = 0;
  for (double x = kStep / 2; x < kFar; x += kStep) {
    const double above = std::erfc(x / std::numbers::sqrt2) / 2;
    sum += kStep * (-std::expm1(static_cast<double>(n) * std::log1p(-above)) - std::pow(above, n));
  }
  return sum;
}

}  // namespace ddp
