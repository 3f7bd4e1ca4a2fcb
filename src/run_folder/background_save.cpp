#include "run_folder/background_save.h"

#include <sys/prctl.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/status/heartbeat.h"
#include "base/threads.h"

namespace ddp {
namespace {

std::size_t elements_of(std::span<const TensorView> views) {
  std::size_t sum = 0;
  for (const TensorView& view : views) sum += view.elements();
  return sum;
}

}  // namespace

BackgroundSave::~BackgroundSave() {
  wait();
  set_outcome(Outcome::closed);
}

void BackgroundSave::set_outcome(Outcome outcome) {
  outcome_ = outcome;
  outcome_.notify_all();
}

void BackgroundSave::start(const TrainingState& state, std::span<const TensorView> model,
                           std::span<const TensorView> optimizer) {
  wait();
  state_ = state;
  values_.resize(elements_of(model) + elements_of(optimizer));
  float* target = values_.data();
  model_ = copy(model, target);
  optimizer_ = copy(optimizer, target);
  failure_ = nullptr;
  set_outcome(Outcome::running);
  if (thread_.joinable()) return;
  try {
    thread_ = std::jthread([this] { serve(); });
  } catch (const std::system_error& error) {
    if (!std::exchange(said_, true)) {
      log_warning("training waits while checkpoints are written: {}", no_thread_text("that", error.code()));
    }
    run();
  }
}

void BackgroundSave::wait() {
  if (outcome_ != Outcome::running) return;
  const LongActivity activity("waiting for the previous checkpoint to be written");
  outcome_.wait(Outcome::running);
}

void BackgroundSave::check() {
  wait();
  if (failed()) std::rethrow_exception(failure_);
}

void BackgroundSave::finish(const Write& write) {
  wait();
  if (!failed()) return;
  write(state_, model_, optimizer_);
  outcome_ = Outcome::written;
}

std::vector<TensorView> BackgroundSave::copy(std::span<const TensorView> views, float*& target) {
  std::vector<TensorView> copies;
  copies.reserve(views.size());
  for (const TensorView& view : views) {
    copies.push_back({view.name, view.shape, target});
    target = std::copy_n(view.data, view.elements(), target);
  }
  return copies;
}

void BackgroundSave::serve() {
  static_cast<void>(prctl(PR_SET_NAME, "checkpoint"));
  for (Outcome now = outcome_; now != Outcome::closed; now = outcome_) {
    if (now == Outcome::running) {
      run();
    } else {
      outcome_.wait(now);
    }
  }
}

void BackgroundSave::run() noexcept {
  try {
    write_(state_, model_, optimizer_);
    set_outcome(Outcome::written);
  } catch (...) {
    failure_ = std::current_exception();
    set_outcome(Outcome::failed);
  }
}

}  // namespace ddp
