// Finds, verifies and reads checkpoints. A checkpoint whose files do not match the sizes and hashes in its manifest, or
// that contains non-finite values, is never loaded.
//
//   if (auto checkpoint = find_checkpoint("runs/lenet-glyphs")) {          // --resume auto
//     load(*checkpoint, "lenet", model_views, optimizer_views);
//     step = checkpoint->state.step;
//   }
//   Checkpoint chosen = open_checkpoint("runs/lenet-glyphs/best");         // --resume PATH
//
// All errors are Error(checkpoint) with the path, the problem and the remedy.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/state.h"
#include "checkpoint/tensor_view.h"

namespace ddp {

// A checkpoint whose files are those that were written.
struct Checkpoint {
  std::filesystem::path path;
  TrainingState state;
  Manifest manifest;
};

// The newest good checkpoint of a run; every bad one passed over is logged as a warning. Nothing where the run has no
// checkpoints; an error where it has some and all are bad, as starting over must be the user's decision.
std::optional<Checkpoint> find_checkpoint(const std::filesystem::path& run_dir);

// The checkpoint at `path`: its folder, a link to it, or a run folder, of which it takes the newest good one.
Checkpoint open_checkpoint(const std::filesystem::path& path);

// The model's tensors, for another run to begin with.
SafetensorsFile read_weights(const Checkpoint& checkpoint);

// Reads the model's tensors, for evaluation. Throws for another model, names, or shapes, naming the first difference,
// before any memory is written.
void load(const Checkpoint& checkpoint, const std::string& model, std::span<const TensorView> tensors);

// Reads the moving average of the model's tensors in place of them, from the optimizer's tensors "ema.NAME"; what has
// none, such as running statistics, is the model's own. Throws as above, and where the checkpoint holds no average.
void load_average(const Checkpoint& checkpoint, const std::string& model, std::span<const TensorView> tensors);

// Reads the model's and the optimizer's tensors, to go on training. Throws as above; memory is written only when all
// of both can be.
void load(const Checkpoint& checkpoint, const std::string& model, std::span<const TensorView> tensors,
          std::span<const TensorView> optimizer_tensors);

}  // namespace ddp
