// The training step on one batch held in memory, timed in series of steps: for bench, and for the probes of explain.
//
//   const HeldBatch held(prepared);
//   StepTimer timer(session, communicator, trainer, held.batch(), {.warm_up = 0.5, .stretch = 0.3});
//   timer.measure(/*stretches=*/9);
//   timer.step_seconds();                    // the median of the series
//   timer.phases()[Phase::forward];          // of this rank, in all series together
#pragma once

#include <cstdint>
#include <vector>

#include "backend/memory.h"
#include "data/pipeline/loader.h"
#include "job/mpi_session.h"
#include "metrics/phases.h"
#include "train/loop/prepared_run.h"
#include "train/loop/trainer.h"

namespace ddp {

// A rank's samples of the first global batch; must outlive the steps on it.
class HeldBatch {
 public:
  explicit HeldBatch(const PreparedRun& prepared);
  Batch batch() const {
    return {.pixels = {pixels_.at<std::uint8_t>(0), pixels_.bytes()},
            .labels = labels_,
            .count = static_cast<std::int64_t>(labels_.size()),
            .indices = indices_,
            .keys = keys_,
            .edits = edits_};
  }

 private:
  Memory pixels_;  // from which a device copies them in each step
  std::vector<std::int32_t> labels_;
  std::vector<std::uint32_t> indices_;
  std::vector<std::uint64_t> keys_;
  std::vector<ImageEdit> edits_;
};

// In seconds.
struct TimerSettings {
  double warm_up = 0.5;
  double stretch = 0.3;  // of a series, which has at least two steps
};

// All ranks run the same number of steps; the time of the slowest rank counts.
class StepTimer {
 public:
  // Collective: makes the first steps. Everything must outlive the timer.
  StepTimer(const MpiSession& session, Communicator& communicator, Trainer& trainer, Batch batch,
            const TimerSettings& settings = {});

  // Collective: times that many series.
  void measure(int stretches);

  double step_seconds() const { return step_seconds_; }
  // Processor time of this rank per step, the median of the series.
  double processor_seconds() const { return processor_seconds_; }
  const PhaseTotals& phases() const { return phases_; }
  // In phases().
  std::int64_t steps() const { return steps_; }

 private:
  std::int64_t steps_in(double seconds) const;
  double run(std::int64_t count);

  const MpiSession& session_;
  Communicator& communicator_;
  Trainer& trainer_;
  Batch batch_;
  TimerSettings settings_;
  double expected_;
  double step_seconds_ = 0;
  double processor_seconds_ = 0;
  PhaseTotals phases_;
  std::int64_t steps_ = 0;
};

}  // namespace ddp
