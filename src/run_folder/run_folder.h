// The folder of a run, accessed by rank 0 only: lock, configuration, logs, checkpoints and links to them, and the files
// of earlier runs.
//
//   RunFolder folder("runs/lenet-glyphs");            // takes the lock
//   auto resumed = folder.find("auto");               // reads and verifies, writes nothing
//   ...                                               // all other checks that may fail
//   folder.open({.config = text});                    // from here on it is written to
//   folder.save_in_background(state, model_views, optimizer_views);
//   folder.evaluated(state.step, {loss, accuracy}, /*best=*/true);
//   folder.finish_saving();
//
// Note [Prepare, then commit]
// A run that is rejected, for whatever reason, leaves the folder unchanged. Everything that open() needs is therefore
// read and verified beforehand, so that it can only fail on disk errors. It deletes nothing: an earlier run, and
// checkpoints later than the one resumed from, are moved to RUN/earlier-1, earlier-2, ...
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/evaluation.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "metrics/logs/run_log.h"
#include "run_folder/background_save.h"
#include "run_folder/run_lock.h"

namespace ddp {

// The checkpoint that a run resumes from, and what the run that wrote it had not finished.
struct ResumePoint {
  TrainingState state;
  std::optional<Evaluation> evaluation;  // of the checkpoint; nullopt if its evaluation was not completed
  bool epoch_logged = true;              // summary.csv has the row of the state's step
};

class RunFolder {
 public:
  // Throws Error(checkpoint) if the folder cannot be written or a living process holds its lock.
  explicit RunFolder(std::filesystem::path path, const LockTiming& timing = {});

  // `resume` is the value of --resume: "none", "auto" (the newest intact checkpoint, if any) or a path. Returns nullopt
  // for a new run.
  std::optional<ResumePoint> find(const std::string& resume);
  // The checkpoint found, or null.
  const Checkpoint* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }

  struct Content {
    std::string config;
    std::string onnx;        // the model's file; empty for a model of the zoo
    std::string split = {};  // which images evaluate (data/index/split.h); empty if the data set says it
    int keep_checkpoints = 3;
    // A checkpoint that cannot be written in the background is a warning, and retry_due() says when to write another.
    bool retry_saves = true;
  };
  void open(const Content& content);

  // Throws Error(checkpoint) if the folder no longer exists, the lock has been lost, or, without Content::retry_saves, a
  // checkpoint could not be written.
  void check_held();  // called in every step
  void check_held_now() { lock_.check_held_now(); }
  RunLog& log() { return *log_; }
  // Returns when the checkpoint is on disk; throws Error(checkpoint) if it cannot be written.
  void save(const TrainingState& state, std::span<const TensorView> model, std::span<const TensorView> optimizer);
  // Copies the tensors and returns. The checkpoint is as good as one written by save(), but later.
  void save_in_background(const TrainingState& state, std::span<const TensorView> model,
                          std::span<const TensorView> optimizer);
  // Whether the last checkpoint could not be written in the background and it is time to try another one: 1 s later, 2 s
  // after the second failure in a row, ... 60 s.
  bool retry_due() const;
  // Waits; what could not be written of the last checkpoint and the logs is tried again. Throws Error(checkpoint) if
  // that fails.
  void finish_saving();
  // The step of the last checkpoint that this process wrote; waits for it.
  std::optional<std::int64_t> last_written();
  // Records the evaluation result of the checkpoint of `step` once it is in the log; `best`: whether it is the best so
  // far.
  void evaluated(std::int64_t step, const Evaluation& evaluation, bool best);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path earlier_folder();
  void move_away(const std::string& name);
  void move_to_earlier(std::optional<std::int64_t> after);
  void finish_moving();
  void move_all();
  void move_later(std::int64_t step);
  void move_earlier_run();
  void fork();
  void settle_replaced();
  void repair_links();
  void write(const TrainingState& state, std::span<const TensorView> model, std::span<const TensorView> optimizer);
  void write_or_warn(const TrainingState& state, std::span<const TensorView> model,
                     std::span<const TensorView> optimizer);

  std::filesystem::path path_;
  RunLock lock_;
  std::optional<Checkpoint> checkpoint_;
  bool here_ = false;                     // the checkpoint is in this folder
  std::optional<Evaluation> evaluation_;  // of that checkpoint
  RunLog::Kept kept_;
  std::filesystem::path earlier_;  // created by this start; empty if nothing had to be moved
  std::optional<CheckpointWriter> writer_;
  std::optional<RunLog> log_;
  bool retry_saves_ = true;
  std::optional<std::int64_t> written_;
  std::atomic<int> failures_{0};  // in a row
  std::atomic<double> retry_at_{0};
  std::optional<BackgroundSave> background_;  // last: its thread uses the members above
};

}  // namespace ddp
