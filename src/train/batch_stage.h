// Puts a loaded batch where the backend's operators read it.
//
//   BatchStage stage(backend, image_bytes, max_samples, resident);
//   stage.set(batch);                          // now the host may load the next one
//   stage.enqueue();                           // the copies to the device, part of its work
//   network.forward(parameters, stage.samples(first, count), ...);
//
// Where all images lie in the device's memory (ResidentImages), only labels, keys and the numbers of the samples are
// copied. Where device memory is host memory nothing is copied (backend/staging.h), and the batch must stay until its
// work is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/staging.h"
#include "data/pipeline/loader.h"
#include "data/sources/dataset.h"
#include "model/network.h"

namespace ddp {

// All images of a data set in the device's memory, as bytes.
class ResidentImages {
 public:
  // Reads the whole data set on this thread and copies it.
  ResidentImages(Backend& backend, const Dataset& dataset);

  const std::uint8_t* pixels() const { return pixels_.at<std::uint8_t>(0); }
  std::size_t bytes() const { return pixels_.bytes(); }

 private:
  Memory pixels_;
};

class BatchStage {
 public:
  // `resident` may be null: then batches bring their pixels. With `mixed` they bring second labels, too.
  BatchStage(Backend& backend, std::size_t image_bytes, std::int64_t max_samples, const ResidentImages* resident,
             bool mixed = false);

  // Takes over a batch; the copies of the one before must be done.
  void set(const Batch& batch);
  // Enqueues the copies of the batch to the device.
  void enqueue();
  // `count` samples of the batch from `first` on, in the backend's memory.
  Samples samples(std::int64_t first, std::int64_t count) const;

 private:
  std::size_t image_bytes_;
  std::int64_t max_samples_;
  const ResidentImages* resident_;
  bool mixed_;
  std::int64_t count_ = 0;
  Staging pixels_, labels_, rows_, keys_, other_labels_, label_weights_;
  std::vector<std::int32_t> row_numbers_;  // of resident images
};

}  // namespace ddp
