#include "sweep/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace ddp {

std::string_view name_of(TrialState state) {
  switch (state) {
    case TrialState::waiting:
      return "waiting";
    case TrialState::running:
      return "running";
    case TrialState::paused:
      return "paused";
    case TrialState::finished:
      return "finished";
    case TrialState::failed:
      return "failed";
  }
  return "";
}

Scheduler::Scheduler(int trials, const Halving& halving)
    : halving_(halving), trials_(static_cast<std::size_t>(trials)) {
  if (halving_.factor == 0) return;
  check(halving_.factor > 1, ExitCode::usage, "--sweep-halving {} must be 0 or at least 2", halving_.factor);
  for (std::int64_t rung = halving_.first_rung; rung < halving_.epochs; rung *= halving_.factor) rungs_.push_back(rung);
  for (Trial& trial : trials_) trial.scores.resize(rungs_.size());
}

// Whether a trial is running or has yet to start.
bool Scheduler::any_to_come() const {
  return std::any_of(trials_.begin(), trials_.end(), [](const Trial& trial) {
    return trial.state == TrialState::waiting || trial.state == TrialState::running;
  });
}

// Among the best floor(n / factor) of the n trials that have reached the rung so far; once all have, at least the best one.
bool Scheduler::among_best(const Trial& trial, std::size_t rung) const {
  std::size_t reached = 0;
  std::size_t better = 0;
  for (const Trial& other : trials_) {
    if (!other.scores[rung]) continue;
    ++reached;
    if (&other != &trial && *other.scores[rung] > *trial.scores[rung]) ++better;
  }
  const std::size_t places = reached / static_cast<std::size_t>(halving_.factor);
  return better < (any_to_come() ? places : std::max<std::size_t>(places, 1));
}

std::optional<int> Scheduler::promotable() const {
  for (std::size_t rung = rungs_.size(); rung-- > 0;) {
    for (std::size_t i = 0; i < trials_.size(); ++i) {
      const Trial& trial = trials_[i];
      const bool stands_here = trial.state == TrialState::paused && trial.promoted == rung && trial.scores[rung];
      if (stands_here && among_best(trial, rung)) return static_cast<int>(i);
    }
  }
  return std::nullopt;
}

std::optional<int> Scheduler::start() {
  std::optional<int> next = promotable();
  if (next) {
    ++trials_[static_cast<std::size_t>(*next)].promoted;
  } else {
    const auto waiting = std::find_if(trials_.begin(), trials_.end(),
                                      [](const Trial& trial) { return trial.state == TrialState::waiting; });
    if (waiting == trials_.end()) return std::nullopt;
    next = static_cast<int>(waiting - trials_.begin());
  }
  Trial& started = trials_[static_cast<std::size_t>(*next)];
  started.state = TrialState::running;
  started.held = false;
  return next;
}

bool Scheduler::evaluated(int index, std::int64_t epoch, double score) {
  Trial& trial = trials_[static_cast<std::size_t>(index)];
  for (std::size_t rung = 0; rung < rungs_.size() && rungs_[rung] <= epoch; ++rung) {
    if (!trial.scores[rung]) trial.scores[rung] = score;
    if (trial.promoted > rung) continue;
    if (!among_best(trial, rung)) {
      trial.held = true;
      return false;
    }
    trial.promoted = rung + 1;
  }
  return true;
}

void Scheduler::ended(int trial, TrialState state) { trials_[static_cast<std::size_t>(trial)].state = state; }

bool Scheduler::done() const { return !any_to_come() && !promotable(); }

}  // namespace ddp
