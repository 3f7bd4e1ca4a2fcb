// Decides which trial runs next: every trial once, or asynchronous successive halving (Li et al., "A System for Massively
// Parallel Hyperparameter Tuning", MLSys 2020), where a trial that is not among the best behind a rung is paused.
//
//   Scheduler scheduler(/*trials=*/16, {.factor = 4, .first_rung = 1, .epochs = 20});
//   std::optional<int> trial = scheduler.start();           // 0
//   scheduler.evaluated(*trial, /*epoch=*/1, /*score=*/0.7);   // whether it goes on
//   scheduler.ended(*trial, TrialState::finished);
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ddp {

enum class TrialState {
  waiting,   // not started, or interrupted
  running,   //
  paused,    // behind a rung, not among the best so far
  finished,  // trained to its end
  failed,    // ended by an error
};
std::string_view name_of(TrialState state);

// Successive halving; factor 0: every trial runs to its end.
struct Halving {
  std::int64_t factor = 0;
  std::int64_t first_rung = 1;  // in epochs
  std::int64_t epochs = 0;      // of a complete training
};

class Scheduler {
 public:
  Scheduler(int trials, const Halving& halving);

  // The trial to run next, then `running`: a paused one that has come to be among the best, from the highest rung down,
  // otherwise the first one that waits. Nothing if there is none at the moment.
  std::optional<int> start();
  // A running trial was evaluated after this many epochs. Returns false if it is to be paused. `score`: higher is better.
  bool evaluated(int trial, std::int64_t epoch, double score);
  // A running trial ended: finished, failed, paused, or waiting if it was interrupted.
  void ended(int trial, TrialState state);
  // For a sweep that is continued: the state of a trial and its evaluations, before any start().
  void restore(int trial, TrialState state) { ended(trial, state); }

  TrialState state(int trial) const { return trials_[static_cast<std::size_t>(trial)].state; }
  // Whether the last evaluation of a trial let it pause.
  bool held(int trial) const { return trials_[static_cast<std::size_t>(trial)].held; }
  // No trial is running or can be started.
  bool done() const;

 private:
  struct Trial {
    TrialState state = TrialState::waiting;
    std::vector<std::optional<double>> scores;  // by rung
    std::size_t promoted = 0;                   // the number of rungs that it may pass
    bool held = false;
  };
  bool any_to_come() const;
  bool among_best(const Trial& trial, std::size_t rung) const;
  std::optional<int> promotable() const;

  Halving halving_;
  std::vector<std::int64_t> rungs_;  // in epochs, below halving_.epochs
  std::vector<Trial> trials_;
};

}  // namespace ddp
