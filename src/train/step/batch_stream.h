// The samples that a rank processes in each step: the only place that maps (seed, epoch, step) to samples.
//
//   BatchStream stream(plan, rank, samples, {.seed = seed}, {.epoch = 0, .step = 0}, last_step);
//   while (auto request = stream.next()) ...   // this rank's samples of the step, shard by shard, and their keys
//
// The global batch of a step is a contiguous range of the epoch's order; it is split into logical shards, and a rank
// processes the samples of its shards. Within a shard, neighbours are mixup partners; since the order is random, these
// are random pairs. Therefore the samples of all ranks together do not depend on the number of ranks, and a checkpoint
// needs only one cursor.
//
// With several copies of a sample the global batch is the same samples once for each copy, one after the other, so that
// copies are not mixed with each other.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/pipeline/loader.h"
#include "data/pipeline/sampler.h"
#include "options/batch.h"

namespace ddp {

struct Cursor {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // within the epoch

  friend bool operator==(const Cursor&, const Cursor&) = default;
};

// The cursor after one step.
Cursor advanced(Cursor cursor, std::int64_t steps_per_epoch);

struct StreamConfig {
  std::uint64_t seed = 0;
  bool alternating = false;  // the keys are those of alternating_key()
  // Copies of each sample in a global batch, with keys of their own (--repeat-augment); divides the global batch. An epoch has
  // as many steps as without, and therefore only the first part of its order.
  std::int64_t copies = 1;
  std::int64_t at_a_time = 1;  // steps whose samples are requested together, up to the end of an epoch
};

class BatchStream {
 public:
  // Ends before step `steps` from here.
  BatchStream(const BatchPlan& plan, int rank, std::int64_t samples, const StreamConfig& config, Cursor begin,
              std::int64_t steps);

  // Step by step. Valid until the next call; empty if the rank has no share of a small last batch.
  std::optional<BatchRequest> next();

 private:
  void add_step();

  BatchPlan plan_;
  int rank_;
  StreamConfig config_;
  Sampler sampler_;
  Cursor cursor_;
  std::int64_t left_;
  std::int64_t shuffled_epoch_ = -1;
  // The contents of the last batch returned.
  std::vector<std::uint32_t> indices_;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> partners_;
};

}  // namespace ddp
