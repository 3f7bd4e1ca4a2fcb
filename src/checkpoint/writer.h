// Writes checkpoints into a run folder so that a crash at any instant leaves the earlier ones usable.
//
//   CheckpointWriter writer("runs/lenet-glyphs", /*keep=*/3);
//   writer.save(state, model_views, optimizer_views);
//   writer.note_evaluation(state.step, {loss, accuracy}, /*is_best=*/true);   // evaluation may take long, or fail
//
// Note [Order of writing]
// A checkpoint is written under a temporary name; its files, then its folder are synced, and read back; it is renamed into place and
// the parent is synced; `latest` is moved; only then are older ones removed, each renamed to a temporary name first, so
// that a name like step-00001234 never refers to a partial checkpoint. It is evaluated afterwards, so that a failure of
// the evaluation cannot affect it; the result is written beside its files, and `best` is moved. An existing checkpoint
// of the same step is renamed to .replaced-step-..., and back if the next rename fails; readers recognise that name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/evaluation.h"
#include "checkpoint/state.h"
#include "checkpoint/tensor_view.h"

namespace ddp {

// One process writes to a run folder at a time.
class CheckpointWriter {
 public:
  // Creates the folders, removes incomplete files of an earlier process, and tests write access. `keep` >= 1 is the
  // number of most recent checkpoints to keep, in addition to the best. Throws Error(checkpoint) if the run folder
  // cannot be written.
  CheckpointWriter(std::filesystem::path run_dir, int keep);

  // Writes RUN/checkpoints/step-S, S being state.step, and returns its path. Later checkpoints, of another run, remain.
  // Throws Error(checkpoint) if it cannot be written; earlier checkpoints are then unchanged.
  std::filesystem::path save(const TrainingState& state, std::span<const TensorView> model,
                             std::span<const TensorView> optimizer);

  // Writes the result of evaluating the checkpoint of `step`, and moves the link `best` to it if it is the best. Does
  // nothing if there is no such checkpoint.
  void note_evaluation(std::int64_t step, const Evaluation& evaluation, bool is_best);

  // Atomically points RUN/NAME (latest or best) to the checkpoint of `step`, or removes the link.
  void point_link(const char* name, std::int64_t step);
  void remove_link(const char* name);

  // For tests: called with a description before each action that changes the disk.
  void set_action_hook(std::function<void(std::string_view)> hook) { hook_ = std::move(hook); }

 private:
  void clean_up();
  void write_files(const std::filesystem::path& folder, const TrainingState& state, std::span<const TensorView> model,
                   std::span<const TensorView> optimizer);
  void publish(const std::filesystem::path& temporary, std::int64_t step);
  // A failure after the checkpoint is complete is a warning only.
  void or_warn(std::int64_t step, const std::function<void()>& action);
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
