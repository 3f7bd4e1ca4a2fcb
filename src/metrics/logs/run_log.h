// The machine-readable logs of a run: RUN/metrics.jsonl, RUN/summary.csv and RUN/steps.csv.
//
//   RunLog log(run_dir, {});                                                // a new run
//   RunLog resumed(run_dir, RunLog::read(run_dir, {.step = 468}));          // a resumed run
//   log.write(TrainRecord{.step = 50, .epoch = 1, .loss = 2.30, .lr = 0.1, .images_per_second = 12e3, .phases = {}});
//   log.write(EvalRecord{.step = 234, .epoch = 1, .val_loss = 0.9, .val_accuracy = 0.71});
//
// metrics.jsonl has one JSON object per line, summary.csv a header and one row per epoch. Numbers are written with
// enough digits to restore the same double; non-finite values are null in JSON, and nan or inf in CSV. Epochs count from
// 1; a step is the number of updates done, so the first training record has step 1 or more. Each line is written with a
// single system call, or later if the disk is full or not there; sync() flushes them to disk. The lines of steps.csv, one for each step, are collected and written
// with the next line of metrics.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/logs/log_file.h"
#include "metrics/outliers.h"
#include "metrics/phases.h"

namespace ddp {

// The phases of every rank over some steps.
struct RankPhases {
  std::int64_t steps = 0;
  std::vector<PhaseTotals> ranks;  // of these steps; empty: not sampled
};

// Every training record has up to this many ranks one by one.
inline constexpr std::size_t kLoggedRanks = 32;

// One line of training: {"step", "epoch", "loss", "lr", "images_per_second", "seconds": {"data_wait": ...}, "grad_norm",
// "mfu", "memory", "ranks": {"steps", "data_wait": [of each rank], ...}}; the last three are left out if unknown. If there are
// many ranks, "ranks" has the slowest of them and "of": their numbers, and "mean" over all.
struct TrainRecord {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double loss = 0;  // mean over the samples of the global batch
  double lr = 0;
  double images_per_second = 0;  // of all ranks, since the previous line
  PhaseTotals phases{};          // since the previous line
  double grad_norm = 0;          // L2 norm of the gradient of the step's mean loss, before clipping; NaN: not recorded
  std::optional<double> mfu = std::nullopt;     // share of the device's peak that forward and backward reach, 0 to 1
  std::optional<double> memory = std::nullopt;  // the most resident host memory of a rank so far, in bytes
  RankPhases sampled = {};
};

// One line of steps.csv. Equal values in two runs mean that they did the same in this step; compare.h of explain finds
// the first difference. Hashes of samples and pixels do not depend on the number of ranks.
struct StepRecord {
  std::int64_t step = 0;
  std::uint64_t samples = 0;  // hash of the indices of the global batch, in order
  std::uint64_t pixels = 0;   // hash of its images after augmentation; 0: a GPU keeps or edits them
  double lr = 0;
  double loss = 0;
  double grad_norm = 0;
  std::uint64_t statistics = 0;  // hash of running statistics after the step; 0: none
  std::uint64_t weights = 0;     // hash of the last weights after the update
  friend bool operator==(const StepRecord&, const StepRecord&) = default;
};
inline constexpr std::string_view kStepsHeader = "step,samples,pixels,lr,loss,grad_norm,statistics,weights\n";

// One line of evaluation: {"step", "epoch", "val_loss", "val_accuracy", "val_top5_accuracy", "class_accuracy": [of each
// class, null without samples], "confusion": [[predicted, for each true class]]}; the last three are left out if unknown,
// and the matrix also for many classes.
struct EvalRecord {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double val_loss = 0;
  double val_accuracy = 0;  // 0 to 1
  std::optional<double> top5_accuracy = std::nullopt;
  std::vector<double> class_accuracy = {};                // NaN: no samples
  std::vector<std::vector<std::int64_t>> confusion = {};  // [true class][predicted class]
};

// A step whose loss or gradient norm stands out (metrics/outliers.h).
struct OutlierRecord {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  const char* quantity = "";  // "loss" or "gradient_norm"
  Outlier outlier;
};

// One row of summary.csv. Unknown cells are empty: those of an epoch without evaluation, and the time of one that an
// earlier process completed. In a resumed epoch, seconds and images_per_second count from the point of resumption.
struct EpochRecord {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  // updates done at the end of the epoch
  double train_loss = 0;  // mean over the epoch's samples
  std::optional<double> val_loss = std::nullopt;
  std::optional<double> val_accuracy = std::nullopt;  // 0 to 1
  double lr = 0;                                      // of the epoch's last step
  std::optional<double> seconds = std::nullopt;
  std::optional<double> images_per_second = std::nullopt;
};
inline constexpr std::string_view kSummaryHeader =
    "epoch,step,train_loss,val_loss,val_accuracy,lr,seconds,images_per_second\n";

// Is shown the records of metrics.jsonl as they are written.
class LogListener {
 public:
  LogListener() = default;
  LogListener(const LogListener&) = delete;
  LogListener& operator=(const LogListener&) = delete;
  virtual ~LogListener() = default;
  virtual void training(const TrainRecord& record) = 0;
  virtual void evaluation(const EvalRecord& record) = 0;
};

class RunLog {
 public:
  // Where a run resumes.
  struct Resume {
    std::int64_t step = 0;
    // Its evaluation, or the end of its epoch, was not completed; the records about it are written again.
    bool unfinished = false;
  };
  // The part of an earlier process's files that is kept.
  struct Kept {
    std::string metrics;
    std::string summary;
    std::string steps;
    bool rewrites_steps = true;
    bool rewrites_metrics = true;  // something is removed
    bool rewrites_summary = true;
    bool epoch_logged = false;  // the last row is that of the step
  };
  // Reads what is kept when a run resumes: records of later steps and an incomplete last line are removed. Writes
  // nothing. Throws Error(checkpoint) if the files cannot be read or were not written by this class.
  static Kept read(const std::filesystem::path& run_dir, const Resume& resume);

  // Atomically replaces each file by the part that is kept, and appends to it. Throws Error(checkpoint) if the files
  // cannot be written.
  RunLog(const std::filesystem::path& run_dir, const Kept& kept);

  void write(const TrainRecord& record);
  void write(const EvalRecord& record);
  void write(const OutlierRecord& record);
  void write(const EpochRecord& record);
  void write(const StepRecord& record);
  // Shows the listener a record that no file gets.
  void show(const TrainRecord& record) {
    if (listener_ != nullptr) listener_->training(record);
  }
  // It must outlive this object; null: none.
  void set_listener(LogListener* listener) { listener_ = listener; }

  // Writes the collected lines of steps.csv. Before each checkpoint flush() and sync() are called, so that none of its
  // records can be missing.
  void flush();
  // Waits until all written lines are on disk, or throws Error(checkpoint). Unlike all else it may be called on another
  // thread.
  void sync();

 private:
  LogFile metrics_;
  LogFile summary_;
  LogFile steps_;
  std::string step_lines_;
  LogListener* listener_ = nullptr;
};

}  // namespace ddp
