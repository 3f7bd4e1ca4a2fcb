// How the time of a step depends on the number of ranks and the batch: a model fitted to short measurements, and the
// causes of lost efficiency. docs/explain-model.md states the model.
//
//   const ScalingModel model = fit_scaling(points);            // of 1 and 2 ranks, for example
//   model.predict({.ranks = 8, .global_batch = 256}).seconds();
//   const Lost lost = lost_time(points[2], points[0], model);  // seconds of a step, by cause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "explain/step_model.h"

namespace ddp {

// What runs where.
struct ScalingLayout {
  std::int64_t ranks = 1;
  std::int64_t global_batch = 1;
  std::int64_t ranks_per_host = 1;  // on the machine with most of them
  double threads_per_core = 1;      // compute threads, on the machine with most of them for each core; at least 1
};

// The sum of one bucket over the ranks.
struct BucketSum {
  double bytes = 0;
  double ready = 0;    // seconds after the begin of the step
  double seconds = 0;  // at its fastest
};

// One measurement.
struct ScalingPoint {
  ScalingLayout layout;
  std::int64_t hosts = 1;
  StepModel step;
  std::int64_t workers = 0;    // per rank
  double load_seconds = 0;     // in which one worker loads the batch of a rank
  double message_seconds = 0;  // of a short message between two ranks; 0 for one rank
  bool overlaps = false;
  std::vector<BucketSum> sums;
  bool gpu = false;

  double batch_per_rank() const { return static_cast<double>(layout.global_batch) / static_cast<double>(layout.ranks); }
  double images_per_second() const { return static_cast<double>(layout.global_batch) / step.training(); }
};

// `timing` is that of a run of at least one step on all ranks that it names.
ScalingPoint scaling_point(const RunTiming& timing, double message_seconds);

struct ScalingModel {
  // Forward and backward on one rank: fixed + per_image * images.
  double compute_fixed = 0;
  double compute_per_image = 0;
  // The update, of which the ranks of a host may divide a part among them.
  double optimizer = 0;
  double divided_optimizer = 0;
  double other = 0;
  double host_sharing =
      0;  // how much slower a rank computes for each further rank that runs on its machine, as a share
  double core_sharing = 1;  // how much longer a rank computes for each further thread on its core, as a share
  std::int64_t workers = 0;
  double load_per_image = 0;
  double least_wait = 0;  // for data that are ready
  double jitter = 0;      // standard deviation of the own time of a rank, as a share
  // What a rank waits for those that it shares a core with, for each further thread on the core, as a share of its own time.
  double core_turns = 0;
  double message_seconds = 0;
  double bandwidth = 0;  // bytes of gradients per second that a rank sends and receives; 0: nothing is known
  bool overlaps = false;
  bool root = false;    // --reduction root
  double unhidden = 1;  // measured over modelled exposed communication, where less is exposed than modelled
  // What the sums of a step take beyond their fastest, in seconds, where more is exposed; stretch() times as long.
  double delay = 0;
  std::vector<double> bucket_bytes;
  std::vector<double> bucket_ready;  // as a share of the time until backward ends
  bool communicates = false;         // a point with several ranks was fitted

  StepModel predict(const ScalingLayout& layout) const;
  // How much longer computing takes because threads share cores.
  double stretch(double threads_per_core) const { return 1 + core_sharing * (threads_per_core - 1); }
  // Seconds of a bucket's sum over `ranks` ranks, if the sums begin when backward has ended.
  double sum_seconds(std::size_t bucket, std::int64_t ranks) const;
};

// At least one point of one rank. What depends on several ranks is taken from the points with the most ranks.
ScalingModel fit_scaling(std::span<const ScalingPoint> points, bool root = false);

// Seconds of a step beyond an even share of the work of one rank, by cause; they add up to the whole loss.
struct Lost {
  double communication = 0;
  double slower_ranks = 0;
  double input = 0;
  double smaller_batch = 0;  // forward and backward compute an image more slowly in a smaller batch
  double shared_host = 0;    // ranks of a host compete for its cores, caches and memory
  double update = 0;         // the update, as far as the ranks of a host do not divide it, and the host's work
  double sum() const { return communication + slower_ranks + input + smaller_batch + shared_host + update; }
};
// `one` is a point of one rank, with the same global batch, or with the same batch per rank; then a step of one rank is
// compared with one step of all.
Lost lost_time(const ScalingPoint& point, const ScalingPoint& one, const ScalingModel& model);

// The mean of the largest of n standard normal numbers.
double expected_maximum(std::int64_t n);

}  // namespace ddp
