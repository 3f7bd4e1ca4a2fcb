// Steps that begin before the host reads the results of earlier ones; on any device, with any number of ranks.
//
//   testing::Outcome outcome = testing::train_ahead(/*ranks=*/2, {.ahead = 4, .queued = true}, seed);
//   testing::halts_and_resumes(/*ranks=*/1, {.ahead = 5});
#pragma once

#include <cstdint>
#include <vector>

#include "training_rig.h"

namespace ddp::testing {

// What the steps of a run have resulted in.
struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<std::int64_t> correct;
  std::vector<std::uint64_t> hashes;
  std::vector<std::uint64_t> pixels;  // hashes, 0 where the device keeps or edits the images
  std::vector<float> parameters;
  bool operator==(const Outcome&) const = default;
};

// The outcome of rank 0. How many steps are in flight varies up to the most, by a rule that all ranks follow. Some steps are smaller
// than config.global_batch, and so are not recorded.
Outcome train_ahead(int ranks, const RigConfig& config, std::uint32_t seed);

// The third of five steps in flight is not finite: nothing changes from there on, and after resume() the steps are made as
// if nothing had happened.
void halts_and_resumes(int ranks, const RigConfig& config);

// The third of four steps that begin at once is not finite: the result says which, and the state is that of steps one by one.
void halts_within_several(int ranks, RigConfig config);

}  // namespace ddp::testing
