// Transfers a loaded batch to the memory of the backend.
//
//   BatchStage stage(backend.queue(), {.image_bytes = image_bytes, .max_samples = max_samples, .resident = resident});
//   stage.set(batch, 0);                       // the host may then load the next one
//   stage.enqueue();                           // enqueues the copies to the device
//   network.forward(Pass::training, state, stage.samples(first, count), results);
//
// If all images are in device memory (ResidentImages), only labels, keys and sample indices are copied. If device
// memory is host memory, nothing is copied (backend/staging.h), and the batch must stay valid until its work is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/device_queue.h"
#include "backend/staging.h"
#include "data/pipeline/loader.h"
#include "data/sources/dataset.h"
#include "model/network.h"

namespace ddp {

// All images of a data set in device memory, as bytes.
class ResidentImages {
 public:
  // Reads the whole data set on this thread and copies it.
  ResidentImages(DeviceQueue& queue, const Dataset& dataset);

  const std::uint8_t* pixels() const { return pixels_.at<std::uint8_t>(0); }
  std::size_t bytes() const { return pixels_.bytes(); }

 private:
  Memory pixels_;
};

// The images as they are read without augmentation; null if they are not `fixed`, or not worth keeping on the device.
std::unique_ptr<ResidentImages> make_resident(DeviceQueue& queue, const Dataset& dataset, bool fixed);

struct StageConfig {
  std::size_t image_bytes = 0;
  std::int64_t max_samples = 0;              // of a batch
  const ResidentImages* resident = nullptr;  // null: batches contain pixels
  bool mixed = false;                        // batches contain second labels and weights
  bool edited = false;                       // batches contain edits of resident images
  std::size_t buffers = 1;                   // batches that may be in use at the same time
};

// Device memory of such batches, where that is not host memory.
std::size_t device_bytes(const StageConfig& config);

class BatchStage {
 public:
  BatchStage(DeviceQueue& queue, const StageConfig& config);

  // Sets the batch to copy to this buffer, from 0. All work on the batch that it held before must be done.
  void set(const Batch& batch, std::size_t buffer);
  // Enqueues the copies of the batch to the device, beside the work enqueued so far and before what follows. It is the
  // batch that samples() refers to. Cannot be recorded.
  void enqueue();
  // The samples [first, first + count) of the batch, in the backend's memory.
  Samples samples(std::int64_t first, std::int64_t count) const;

 private:
  DeviceQueue& queue_;
  StageConfig config_;
  std::int64_t count_ = 0;
  Staging pixels_, labels_, rows_, keys_, other_labels_, label_weights_, edits_;
  std::vector<std::int32_t> row_numbers_;  // indices of resident images
};

}  // namespace ddp
