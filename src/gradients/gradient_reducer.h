// Sums the gradients of all logical shards over all ranks, while backward still runs: what a training step sees of it.
//
//   reducer.begin_step(step);
//   for (int shard = 0; shard < reducer.local_shards(); ++shard) {
//     float* gradient = reducer.shard_gradient();
//     backward(gradient, [&](std::size_t begin) { reducer.ready(begin); });
//     reducer.shard_done();
//   }
//   reducer.finish();
//   optimizer.update(reducer.gradient());   // the sum over all shards of all ranks
//   reducer.wait();
//
// All memory is that of the backend that backward runs on, and all of it is enqueued in the order of its work
// (Note [Order of work] in backend/backend.h); wait() is where the host waits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp {

class GradientReducer {
 public:
  GradientReducer() = default;
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;
  virtual ~GradientReducer() = default;

  // How many shards this rank works through in a step.
  virtual int local_shards() const = 0;
  // Whether any bucket is reduced while backward runs; false with one rank, or where one bucket is all.
  virtual bool overlaps() const = 0;
  // Whether a step's reduction can be part of a Recording.
  virtual bool recordable() const = 0;

  // Begins a step; its number appears in errors.
  virtual void begin_step(std::int64_t step) = 0;

  // Where backward of the next shard writes its gradient: all elements of the flat buffer, at a multiple of
  // kMemoryAlignment bytes, with no meaningful content, to be overwritten. Valid until shard_done().
  virtual float* shard_gradient() = 0;
  // Backward of the current shard has finished all gradient elements from `parameter_begin` to the end of the buffer.
  virtual void ready(std::size_t parameter_begin) = 0;
  // Backward of the current shard has finished.
  virtual void shard_done() = 0;
  // After the last shard: what is enqueued from here on sees the sums.
  virtual void finish() = 0;
  // The sum over all shards of all ranks, from finish() until the next shard_gradient().
  virtual float* gradient() = 0;

  // Replaces a few values by their sums over the ranks, the same bits on all of them; between finish() and wait().
  virtual void sum(double* values, std::size_t count) = 0;
  // The host waits for all that was enqueued; throws what went wrong, naming the step. The end of a step.
  virtual void wait() = 0;
};

}  // namespace ddp
