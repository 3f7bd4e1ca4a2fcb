// A batch normalisation of maps of 1x1 over one sample has a single value of each channel, which is its own mean: it passes on
// nothing, and its running variances are zero. No step of a run computes this.
//
//   const BatchPlan batch_plan = without_single_values(job, inputs);   // or throws
//   const std::string text = last_batch_text(job, inputs);             // for the header
//
// Whole batches are as the options say, so too small ones are an error. A last, incomplete batch of an epoch is divided into
// fewer shards, or dropped if it is one sample: by a rule of the shapes of layers and batches alone, so that epochs have the
// same steps on any number of ranks.
#pragma once

#include <string>

#include "options/batch.h"
#include "train/inputs/job.h"

namespace ddp {

struct Inputs;

// The batches of the inputs, or with another last batch of an epoch. Throws Error(usage) if some shard of each batch has one
// sample and a batch normalisation is over it alone. Runs that began before there was this rule go on with a warning.
BatchPlan without_single_values(const Job& job, const Inputs& inputs);

// What is special about the last batch of an epoch, or "".
std::string last_batch_text(const Job& job, const Inputs& inputs);

}  // namespace ddp
