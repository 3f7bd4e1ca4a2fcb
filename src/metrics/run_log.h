// The machine-readable logs of a run: RUN/metrics.jsonl and RUN/summary.csv.
//
//   RunLog log(run_dir, {});                                                // a new run
//   RunLog resumed(run_dir, RunLog::read(run_dir, {.step = 468}));          // a resumed run
//   log.write(TrainRecord{.step = 50, .epoch = 1, .loss = 2.30, .lr = 0.1, .images_per_second = 12e3, .phases = {}});
//   log.write(EvalRecord{.step = 234, .epoch = 1, .val_loss = 0.9, .val_accuracy = 0.71});
//
// metrics.jsonl has one JSON object per line, summary.csv a header and one row per epoch. Numbers are written with
// enough digits to restore the same double; non-finite values are null in JSON, and nan or inf in CSV. Epochs count from
// 1; a step is the number of updates done, so the first training record has step 1 or more. Each line is written with a
// single system call; sync() flushes them to disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/file.h"
#include "metrics/outliers.h"
#include "metrics/phases.h"

namespace ddp {

// One line of training: {"step", "epoch", "loss", "lr", "images_per_second", "seconds": {"data_wait": ...}}.
struct TrainRecord {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double loss = 0;  // mean over the samples of the global batch
  double lr = 0;
  double images_per_second = 0;  // of all ranks, since the previous line
  PhaseTotals phases{};          // since the previous line
};

// One line of evaluation: {"step", "epoch", "val_loss", "val_accuracy"}.
struct EvalRecord {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double val_loss = 0;
  double val_accuracy = 0;  // 0 to 1
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

  // Waits until all lines are on disk; called with each checkpoint, so that none of its records can be missing.
  void sync();

 private:
  File metrics_;
  File summary_;
};

}  // namespace ddp
