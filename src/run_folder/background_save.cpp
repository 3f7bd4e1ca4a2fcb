#include "run_folder/background_save.h"

#include <sys/prctl.h>

#include <algorithm>

#include "base/heartbeat.h"

namespace ddp {
namespace {

std::size_t elements_of(std::span<const TensorView> views) {
  std::size_t sum = 0;
  for (const TensorView& view : views) sum += view.elements();
  return sum;
}

}  // namespace

BackgroundSave::~BackgroundSave() { wait(); }

void BackgroundSave::start(const TrainingState& state, std::span<const TensorView> model,
                           std::span<const TensorView> optimizer) {
  wait();
  state_ = state;
  values_.resize(elements_of(model) + elements_of(optimizer));
  float* target = values_.data();
  model_ = copy(model, target);
  optimizer_ = copy(optimizer, target);
  failure_ = nullptr;
  outcome_ = Outcome::running;
  thread_ = std::jthread([this] { run(); });
}

void BackgroundSave::wait() {
  if (!thread_.joinable()) return;
  const LongActivity activity("waiting for the previous checkpoint to be written");
  thread_.join();
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

void BackgroundSave::run() noexcept {
  static_cast<void>(prctl(PR_SET_NAME, "checkpoint"));
  try {
    write_(state_, model_, optimizer_);
    outcome_ = Outcome::written;
  } catch (...) {
    failure_ = std::current_exception();
    outcome_ = Outcome::failed;
  }
}

}  // namespace ddp
