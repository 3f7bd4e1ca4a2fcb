// Writes checkpoints into a run folder so that a crash at any instant leaves the earlier ones usable.
//
//   CheckpointWriter writer("runs/lenet-glyphs", /*keep=*/3);
//   writer.save(state, model_views, optimizer_views, /*is_best=*/state.best_accuracy improved just now);
//
// Note [Order of writing]
// A checkpoint is written under a temporary name; its files, then its folder are synced; it is renamed into place, the
// parent synced; `latest` and `best` are moved; and only then are older ones removed, each renamed to a temporary name
// first, so that a name like step-00001234 never stands for half a checkpoint.
// Where a checkpoint of the same step exists it is renamed to .replaced-step-... and back again should the next rename
// fail; readers know that name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/state.h"
#include "checkpoint/tensor_view.h"

namespace ddp {

// One process writes to a run folder at a time.
class CheckpointWriter {
 public:
  // Makes the folders, removes what an earlier process left half done, and tries whether it can write at all.
  // `keep` >= 1 is the number of newest checkpoints that stay; the best one stays besides.
  // Throws Error(checkpoint) where the run folder cannot be written.
  CheckpointWriter(std::filesystem::path run_dir, int keep);

  // Writes RUN/checkpoints/step-S, S being state.step, and returns its path. Checkpoints of later steps, left by a run
  // that went on from S before, are removed as history that did not happen.
  // Throws Error(checkpoint) where it cannot be written; all earlier checkpoints are then as they were.
  std::filesystem::path save(const TrainingState& state, std::span<const TensorView> model,
                             std::span<const TensorView> optimizer, bool is_best = false);

  // For tests: called with a description before each action that changes the disk.
  void set_action_hook(std::function<void(std::string_view)> hook) { hook_ = std::move(hook); }

 private:
  void clean_up();
  void write_files(const std::filesystem::path& folder, const TrainingState& state, std::span<const TensorView> model,
                   std::span<const TensorView> optimizer);
  void publish(const std::filesystem::path& temporary, std::int64_t step);
  void point_link(const char* name, std::int64_t step);
  void remove_old(std::int64_t newest_step);
  void remove_folder(const std::filesystem::path& folder);
  void begin(std::string_view action) const {
    if (hook_) hook_(action);
  }

  std::filesystem::path run_dir_;
  std::filesystem::path folder_;
  int keep_;
  std::function<void(std::string_view)> hook_;
};

}  // namespace ddp
