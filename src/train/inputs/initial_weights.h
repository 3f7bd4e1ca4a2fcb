// The weights with which a run begins: those of the model's file, or random ones; then those that depend on the training
// images (train/inputs/whitening.h), and those of --init-from (train/inputs/init_from.h).
//
//   const std::vector<float> initial_statistics = initial_weights(job, inputs, imported, host_parameters->values());
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "onnx/import.h"
#include "train/inputs/inputs.h"
#include "train/inputs/job.h"

namespace ddp {

// Fills in the flat parameters, and returns the running statistics. All ranks have those of rank 0 in the end, which is the
// only one that reads images and files, unless the weights are a checkpoint's. Throws Error(checkpoint) as load_initial() does.
std::vector<float> initial_weights(const Job& job, const Inputs& inputs, const std::optional<ImportedModel>& imported,
                                   std::span<float> parameters);

}  // namespace ddp
