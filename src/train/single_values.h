// A batch normalisation of maps of 1x1 over one sample has a single value of each channel, which is its own mean: it passes on
// nothing, and its running variances are zero. No step of a run computes this.
//
//   avoid_single_values(experiment);                            // throws, or changes what the last batch of an epoch is
//   const std::string text = last_batch_text(experiment);       // for the header
//
// Whole batches are as the options say, so too small ones are an error. A last, incomplete batch of an epoch is divided into
// fewer shards, or dropped if it is one sample: by a rule of the shapes of layers and batches alone, so that epochs have the
// same steps on any number of ranks.
#pragma once

#include <string>

namespace ddp {

struct Experiment;

// Throws Error(usage) if some shard of each batch has one sample and a batch normalisation is over it alone. Runs that began
// before there was this rule go on with a warning.
void avoid_single_values(Experiment& e);

// What is special about the last batch of an epoch, or "".
std::string last_batch_text(const Experiment& e);

}  // namespace ddp
