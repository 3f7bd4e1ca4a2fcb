// The data loader: worker threads read the next batches during computation on the current one.
//
//   Loader loader(train, {.max_batch = 128, .workers = 1, .prefetch = 2}, [&]() -> std::optional<BatchRequest> {
//     if (step == steps) return std::nullopt;          // end of data
//     return BatchRequest{.indices = sampler.order().subspan(step++ * 128, 128), .keys = {}};
//   });
//   while (std::optional<Batch> batch = loader.next()) train_step(batch->pixels, batch->labels);
//
// Batches are delivered in order regardless of the number of workers, and nothing is allocated per batch. Workers write
// pixels to memory that the caller may provide, such as page-locked memory, from which a device copies them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "data/pipeline/augmentation.h"
#include "data/sources/dataset.h"

namespace ddp {

// A loaded batch: views into a slot of the loader, valid until the following next(), with LoaderConfig::held of n until the
// n-th following one, or until restart().
struct Batch {
  std::span<const std::uint8_t> pixels;  // [count][channels][height][width]; empty without read_pixels
  std::span<const std::int32_t> labels;  // [count]
  std::int64_t count = 0;
  std::span<const std::uint32_t> indices;  // [count], of the samples in the data set
  // [count], keys of the samples' random numbers; empty if the request had none
  std::span<const std::uint64_t> keys = {};
  // With mixup or CutMix (data/pipeline/mixup.h): the label of each sample's partner, and the weight of its own label, 0 to 1.
  std::span<const std::int32_t> other_labels = {};  // [count], or empty
  std::span<const float> label_weights = {};        // [count], or empty
  // With LoaderConfig::edits: how the device is to change the images, whose pixels are those of the data set.
  std::span<const ImageEdit> edits = {};  // [count], or empty
};

// Consecutive samples of a batch.
Batch part_of(const Batch& batch, std::int64_t first, std::int64_t count);

// The samples of a batch, in order.
struct BatchRequest {
  std::span<const std::uint32_t> indices;
  std::span<const std::uint64_t> keys =
      {};  // of the samples' random numbers (data/pipeline/sample_key.h); may be empty
  // For each sample the position in the batch of its mixup partner; partners refer to each other, and a sample without
  // one to itself. May be empty.
  std::span<const std::uint32_t> partners = {};
  std::uint64_t batch_key = 0;  // of the random numbers that all samples share
};

struct LoaderConfig {
  std::int64_t max_batch = 0;  // samples of the largest batch
  int workers = 1;             // threads; 0: next() itself reads the samples
  int prefetch = 2;            // batches read ahead of those in use; at least 1; ignored if workers is 0
  bool read_pixels = true;     // false: labels and indices only, for images kept in device memory
  bool training = false;       // read augmented images, by the keys of the batches
  double mixup = 0;            // the parameter of mixup, for training; 0: off
  double cutmix = 0;           // likewise; with both, each pair is mixed by one of them
  // Images are read as they are, and for each sample edit_of() is drawn; null: the data set augments them.
  const Augmentation* edits = nullptr;
  bool mixes_by_batch = false;  // draw from the batch's key instead of the samples'
  std::size_t held = 1;         // batches that are valid at a time, the last one included
  // Allocates the memory of a batch's pixels; called once for each slot. Empty: the loader's own memory.
  std::function<std::shared_ptr<std::uint8_t>(std::size_t bytes)> allocate = {};

  bool mixes() const { return mixup > 0 || cutmix > 0; }
};

// What the loader has done so far.
struct LoaderStatistics {
  std::int64_t batches = 0;  // delivered by next()
  std::int64_t ready = 0;    // sum over them of the batches that were ready, this one included, when next() was called
  double busy_seconds = 0;   // of all workers, or of next() itself without workers, in reading and augmenting samples
  double cpu_seconds = 0;    // the part of it on a core, not waiting for a disk or for a core
};

// The time in which a worker read samples of one batch.
struct LoaderSpan {
  int worker = 0;          // from 0
  std::int64_t batch = 0;  // in the order of next(), from 0
  double begin = 0;        // base/clock.h
  double end = 0;
};

// Not thread-safe. The destructor may be called at any time; it waits for the samples that the workers have claimed,
// about half a batch at most.
class Loader {
 public:
  // Returns the next batch; nullopt at the end. Called by next() on the caller's thread, up to `prefetch` batches
  // ahead. The spans must stay valid until the following call; they may be empty (a rank without a share of a small
  // last batch).
  using NextBatch = std::function<std::optional<BatchRequest>()>;

  // `dataset` must outlive the loader.
  Loader(const Dataset& dataset, const LoaderConfig& config, NextBatch next_batch);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch, or nullopt after the last one. An exception from reading a sample is rethrown here, at the batch of
  // that sample, and by every later call until restart().
  std::optional<Batch> next();

  LoaderStatistics statistics() const;
  // What the workers did last, up to 1,024 batches of each; empty without workers.
  std::vector<LoaderSpan> last_spans();

  // Discards prefetched batches and continues with another sequence of batches.
  void restart(NextBatch next_batch);

 private:
  // The buffers of one batch. Batch number s is in slots_[s % slots_.size()]; there are as many slots as batches that are
  // held or read ahead.
  struct Slot {
    std::vector<std::uint32_t> indices;
    std::vector<std::uint64_t> keys;
    std::vector<std::uint32_t> partners;
    std::uint64_t batch_key = 0;
    std::shared_ptr<std::uint8_t> memory;  // of the pixels
    std::span<std::uint8_t> pixels;
    std::vector<std::int32_t> labels;
    std::vector<std::int32_t> other_labels;
    std::vector<float> label_weights;
    std::vector<ImageEdit> edits;
    std::size_t claimed = 0;  // samples claimed by workers
    std::size_t loaded = 0;
    bool ready = false;
    std::exception_ptr error;
  };

  Slot& slot(std::int64_t sequence) { return slots_[static_cast<std::size_t>(sequence) % slots_.size()]; }
  bool submit_next();
  void load(Slot& target, std::size_t begin, std::size_t end);
  std::int64_t count_ready();
  void mix(Slot& target) const;
  void note_span(int worker, const LoaderSpan& span);
  void work(int worker, const std::stop_token& stop);

  const Dataset& dataset_;
  LoaderConfig config_;
  NextBatch next_batch_;
  std::vector<Slot> slots_;
  std::int64_t ahead_;          // batches that are submitted before the first of them is taken
  bool ended_ = false;          // next_batch_ has returned nullopt
  std::int64_t taken_ = 0;      // sequence numbers below were returned by next(), or discarded
  std::exception_ptr failure_;  // rethrown by next() from now on
  std::int64_t delivered_ = 0;
  std::int64_t ready_sum_ = 0;
  std::atomic<double> busy_seconds_ = 0;
  std::atomic<double> cpu_seconds_ = 0;

  std::mutex mutex_;  // guards the members below, and the slots from submission until they are ready
  std::condition_variable_any has_work_;  // a batch was submitted
  std::condition_variable has_batch_;     // a batch became ready
  std::int64_t submitted_ = 0;            // sequence numbers below were submitted to the workers
  std::int64_t working_ = 0;              // the batch from which the workers claim samples
  // By worker, a ring of its last batches.
  struct Spans {
    std::vector<LoaderSpan> ring;
    std::size_t count = 0;  // so far
  };
  std::vector<Spans> spans_;
  std::vector<std::jthread> workers_;  // last, so that they are joined before the members that they use are destroyed
};

}  // namespace ddp
