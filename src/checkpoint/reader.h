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

// A checkpoint whose files have been verified.
struct Checkpoint {
  std::filesystem::path path;
  TrainingState state;
  Manifest manifest;
};

// The newest intact checkpoint of a run; a warning is logged for each damaged one that is skipped. Nothing if the run
// has no checkpoints; an error if all of them are damaged, since starting over must be the user's decision.
std::optional<Checkpoint> find_checkpoint(const std::filesystem::path& run_dir);

// The checkpoint at `path`: its folder, a link to it, or a run folder, whose newest intact checkpoint is used.
Checkpoint open_checkpoint(const std::filesystem::path& path);

// Throws Error(checkpoint) if a file in `folder` does not have the size and hash that the manifest states.
void verify_files(const std::filesystem::path& folder, const Manifest& manifest);

// The model's tensors, to initialize another run.
SafetensorsFile read_weights(const Checkpoint& checkpoint);

// Reads the model's tensors, for evaluation. Throws if the model, names or shapes differ, naming the first difference,
// before any memory is written.
void load(const Checkpoint& checkpoint, const std::string& model, std::span<const TensorView> tensors);

// Reads the moving average of the model's tensors instead, from the optimizer's tensors "ema.NAME"; tensors without
// one, such as running statistics, are those of the model. Throws as above, and if the checkpoint contains no average.
void load_average(const Checkpoint& checkpoint, const std::string& model, std::span<const TensorView> tensors);

// Reads the tensors of the model and the optimizer, to resume training. Throws as above; memory is written only if all
// tensors of both can be read.
void load(const Checkpoint& checkpoint, const std::string& model, std::span<const TensorView> tensors,
          std::span<const TensorView> optimizer_tensors);

}  // namespace ddp
