// The preprocessing of a run, from its options or from a checkpoint.
//
//   Preprocessing preprocessing = preprocessing_of(options.data, kLatestDefaults);
//   preprocessing.normalization = choose_normalization(options.data, *data.train);
//   std::string recipe = preprocessing_of(TrainingState{}).recipe();
#pragma once

#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "data/images/preprocessing.h"
#include "data/sources/dataset.h"
#include "options/options.h"

namespace ddp {

// The network reads byte * scale + shift, per channel.
struct PixelValues {
  std::vector<float> scale;
  std::vector<float> shift;
};

// But for the normalisation, which may depend on the images. `defaults` is the revision of the run (options/defaults.h).
Preprocessing preprocessing_of(const DataOptions& options, int defaults);
// With which a checkpoint was trained and evaluated.
Preprocessing preprocessing_of(const TrainingState& state);

// Whether pictures of any size are brought to the network's.
bool resizes_pictures(const std::string& dataset);

// --normalize.
Normalization choose_normalization(const DataOptions& options, const Dataset& train);
// The normalisation of a checkpoint, for its evaluation; `options`: that of the options.
Normalization evaluated_normalization(const Normalization& options, const TrainingState& state);

}  // namespace ddp
