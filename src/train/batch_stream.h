// Which samples a rank computes, step after step: the one place that turns (seed, epoch, step) into samples.
//
//   BatchStream stream(plan, rank, samples, seed, {.epoch = 0, .step = 0}, last_step);
//   while (auto request = stream.next()) ...   // this rank's samples of the step, shard after shard, and their keys
//
// The global batch of a step is a run of the epoch's order; it is cut into logical shards, and a rank's samples are
// those of its shards. Within a shard neighbours are partners, which samples are mixed with; the order is random, so
// they are random pairs. So the stream of all ranks together does not depend on their number, and a checkpoint needs
// one cursor only.
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

class BatchStream {
 public:
  // Ends before step `steps` from here.
  BatchStream(const BatchPlan& plan, int rank, std::int64_t samples, std::uint64_t seed, Cursor begin,
              std::int64_t steps);

  // Valid until the next call; empty where the rank has no share of a small last batch.
  std::optional<BatchRequest> next();

 private:
  BatchPlan plan_;
  int rank_;
  std::uint64_t seed_;
  Sampler sampler_;
  Cursor cursor_;
  std::int64_t left_;
  std::int64_t shuffled_epoch_ = -1;
  // Of the batch given last.
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> partners_;
};

}  // namespace ddp
