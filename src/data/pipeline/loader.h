// The loader: worker threads that read the coming batches while the current one is being computed on.
//
//   Loader loader(train, {.max_batch = 128, .workers = 1, .prefetch = 2}, [&]() -> std::optional<BatchRequest> {
//     if (step == steps) return std::nullopt;          // nothing more comes
//     return BatchRequest{.indices = sampler.order().subspan(step++ * 128, 128), .keys = {}};
//   });
//   while (std::optional<Batch> batch = loader.next()) train_step(batch->pixels, batch->labels);
//
// Batches come in the order of their indices whatever the number of workers, and nothing is allocated per batch.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "data/sources/dataset.h"

namespace ddp {

// A loaded batch: views into a slot of the loader, valid until its next next() or restart().
struct Batch {
  std::span<const std::uint8_t> pixels;  // [count][channels][height][width]; empty where none are read
  std::span<const std::int32_t> labels;  // [count]
  std::int64_t count = 0;
  std::span<const std::uint32_t> indices;  // [count], of the samples in the data set
  // [count], keys of the samples' random numbers; empty if the request had none
  std::span<const std::uint64_t> keys = {};
  // Where samples are mixed (data/pipeline/mixup.h): the label of each one's partner, and the weight of its own, 0
  // to 1.
  std::span<const std::int32_t> other_labels = {};  // [count], or empty
  std::span<const float> label_weights = {};        // [count], or empty
};

// The samples of a batch, in the order in which they shall lie.
struct BatchRequest {
  std::span<const std::uint32_t> indices;
  std::span<const std::uint64_t> keys = {};  // of the samples' random numbers (data/pipeline/sample_key.h); or none
  // For each sample the place in the batch of the one that it is mixed with; partners have each other, and who has none
  // has itself. Or none.
  std::span<const std::uint32_t> partners = {};
};

struct LoaderConfig {
  std::int64_t max_batch = 0;  // samples of the largest batch
  int workers = 1;             // threads; 0: next() itself reads the samples
  int prefetch = 2;            // batches read ahead of the one in use; at least 1, without meaning where workers is 0
  bool read_pixels = true;     // false: labels and indices only, for images that lie in the device's memory
  bool training = false;       // read the images as training sees them, by the keys of the batches
  double mixup = 0;            // the parameter of mixup, for training; 0: off
};

// All public functions are for one thread. The destructor may be called at any time; it waits for the samples that the
// workers have taken on, about half a batch at most.
class Loader {
 public:
  // The batch that follows; nullopt where nothing more comes. It is called by next() on the caller's thread, up to
  // `prefetch` batches ahead. The spans must stay valid until the call after; they may be empty (a rank without a share
  // of a small last batch).
  using NextBatch = std::function<std::optional<BatchRequest>()>;

  // `dataset` must outlive the loader.
  Loader(const Dataset& dataset, const LoaderConfig& config, NextBatch next_batch);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch, or nullopt after the last one. What reading a sample throws is thrown here, at the batch that the
  // sample belongs to, and again by every later call until restart().
  std::optional<Batch> next();

  // Drops what was read ahead and goes on with another sequence of batches.
  void restart(NextBatch next_batch);

 private:
  // Room for one batch. A batch with sequence number s lies in slots_[s % slots_.size()].
  struct Slot {
    std::vector<std::uint32_t> indices;
    std::vector<std::uint64_t> keys;
    std::vector<std::uint32_t> partners;
    std::vector<std::uint8_t> pixels;
    std::vector<std::int32_t> labels;
    std::vector<std::int32_t> other_labels;
    std::vector<float> label_weights;
    std::size_t claimed = 0;  // samples that a worker has taken on
    std::size_t loaded = 0;
    bool ready = false;
    std::exception_ptr error;
  };

  Slot& slot(std::int64_t sequence) { return slots_[static_cast<std::size_t>(sequence) % slots_.size()]; }
  bool submit_next();
  void load(Slot& target, std::size_t begin, std::size_t end) const;
  void mix(Slot& target) const;
  void work(const std::stop_token& stop);

  const Dataset& dataset_;
  LoaderConfig config_;
  NextBatch next_batch_;
  std::vector<Slot> slots_;
  bool ended_ = false;          // next_batch_ has returned nullopt
  bool holding_ = false;        // the caller is using the batch released_
  std::int64_t released_ = 0;   // sequence numbers below are done with
  std::exception_ptr failure_;  // what next() throws from now on

  std::mutex mutex_;                      // guards what follows, and the slots from submission until they are ready
  std::condition_variable_any has_work_;  // a batch was submitted
  std::condition_variable has_batch_;     // a batch became ready
  std::int64_t submitted_ = 0;            // sequence numbers below were given to the workers
  std::int64_t working_ = 0;              // the batch that the workers take samples from
  std::vector<std::jthread> workers_;     // last, so that they end before what they use
};

}  // namespace ddp
