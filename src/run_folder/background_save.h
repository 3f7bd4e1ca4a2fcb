// Writes checkpoints on a thread, from a copy of the tensors, while training continues.
//
//   CheckpointWriter writer("runs/lenet-glyphs", /*keep=*/3);
//   BackgroundSave saves(
//       [&](const auto& state, auto model, auto optimizer) { (void)writer.save(state, model, optimizer); });
//   saves.start(state, model_views, optimizer_views);   // copies the tensors and returns
//   ...                                                 // steps that change them
//   saves.wait();                                       // until the checkpoint is written, or could not be
//
// The copy needs as much host memory as the tensors. Used by one thread.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "checkpoint/state.h"
#include "checkpoint/tensor_view.h"

namespace ddp {

class BackgroundSave {
 public:
  using Write = std::function<void(const TrainingState& state, std::span<const TensorView> model,
                                   std::span<const TensorView> optimizer)>;
  // `write` runs on the thread, one call at a time; what it throws is kept for failure().
  explicit BackgroundSave(Write write) : write_(std::move(write)) {}
  // Waits.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Waits for the previous checkpoint first.
  void start(const TrainingState& state, std::span<const TensorView> model, std::span<const TensorView> optimizer);
  void wait();
  // Whether the last checkpoint could not be written; false while it is being written.
  bool failed() const { return outcome_ == Outcome::failed; }
  // After a newer checkpoint was written otherwise.
  void forget_failure() { outcome_ = Outcome::written; }
  // Waits, and throws if the last checkpoint could not be written.
  void check();
  // Waits, and if the last checkpoint could not be written, tries again by `write` on the calling thread.
  void finish(const Write& write);

 private:
  // closed: the thread shall end.
  enum class Outcome { none, running, written, failed, closed };

  std::vector<TensorView> copy(std::span<const TensorView> views, float*& target);
  void set_outcome(Outcome outcome);
  void serve();
  void run() noexcept;

  Write write_;
  TrainingState state_;
  std::vector<float> values_;
  std::vector<TensorView> model_;
  std::vector<TensorView> optimizer_;
  std::exception_ptr failure_;  // written by the thread before `outcome_`
  std::atomic<Outcome> outcome_{Outcome::none};
  bool said_ = false;    // that there is no thread
  std::jthread thread_;  // from the first start() on: to create it takes longer than to copy a small network
};

}  // namespace ddp
