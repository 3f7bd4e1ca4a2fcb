// RUN/timing.json: what a run has measured of itself, from which ddp_train explain finds what limits it.
//
//   write_timing(run_dir, timing);                  // now and then, and at the end
//   const RunTiming read = read_timing(run_dir);
//   read.ranks[3].phases[Phase::data_wait];       // seconds of rank 3, without the first steps
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "metrics/recorder.h"

namespace ddp {

// The linear layers that send less if they are divided among the ranks, and what a rank sends for them in a step.
struct DivisibleLayers {
  std::vector<std::string> names;
  double activations = 0;  // bytes: divided, their activations and the gradients of these
  double gradients = 0;    // otherwise, the gradients of their parameters in a ring
  friend bool operator==(const DivisibleLayers&, const DivisibleLayers&) = default;
};

// How a run with --pipeline is divided. Rank r computes stage r % stages.
struct PipelineFacts {
  std::int64_t stages = 1;           // 1: it is not
  std::int64_t micro_batches = 0;    // of a replica, in a step
  std::vector<std::string> layers;   // of each stage, for people
  double data_parallel_seconds = 0;  // estimated: the passes and sums of a step without the option
  friend bool operator==(const PipelineFacts&, const PipelineFacts&) = default;
};

// What does not change during a run.
struct RunFacts {
  std::string program;             // its version
  std::string device;              // of rank 0, for people
  bool gpu = false;                // the ranks compute on GPUs
  std::vector<std::string> hosts;  // by rank
  // By rank, the lowest rank on the same machine: hosts that are containers of one machine share its cores.
  std::vector<std::int64_t> machines;
  std::vector<std::int64_t> threads;  // compute threads, by rank
  std::vector<std::int64_t> cpus;     // logical CPUs that the ranks of this rank's machine may use together, by rank
  std::vector<std::int64_t> samples;  // of a full global batch, by rank
  std::int64_t workers = 0;           // loader threads per rank
  std::int64_t global_batch = 0;
  std::int64_t shards = 1;
  std::int64_t steps_per_epoch = 0;
  std::string reduction;             // "none, one rank", or the algorithm
  bool overlaps = false;             // buckets are summed during backward
  double flops_per_sample = 0;       // of forward and backward
  std::optional<double> peak_flops;  // of the device of a rank, per second
  std::vector<double> bucket_bytes;  // as sent
  DivisibleLayers divisible;         // none where --split-linear is not possible, or divides layers already
  PipelineFacts pipeline;
  friend bool operator==(const RunFacts&, const RunFacts&) = default;
};

struct RunTiming {
  RunFacts facts;
  bool complete = false;         // the run has ended
  std::int64_t step = 0;         // up to which it was timed
  std::int64_t evaluations = 0;  // in the time of the phases
  std::int64_t checkpoints = 0;
  std::vector<RankTiming> ranks;
  std::vector<BucketTiming> buckets;  // of rank 0, but `shortest` over all ranks; may be empty
};

std::string to_json(const RunTiming& timing);
// Throws Error(checkpoint) naming `origin` if the text is not what to_json() writes, or of a newer version.
RunTiming parse_timing(const std::string& text, const std::string& origin);

// Atomic, not synced to disk. Throws Error(checkpoint) if it cannot be written.
void write_timing(const std::filesystem::path& run_dir, const RunTiming& timing);
// Throws Error(checkpoint) if the folder is not that of a run, or of a run without timing.json.
RunTiming read_timing(const std::filesystem::path& run_dir);

}  // namespace ddp
