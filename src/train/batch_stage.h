// Puts a loaded batch where the backend's operators read it.
//
//   BatchStage stage(backend, image_bytes, max_samples, resident);
//   stage.set(batch);                          // now the host may load the next one
//   stage.enqueue();                           // the copies to the device, part of its work
//   network.forward(parameters, stage.samples(first, count), ...);
//
// Where all images lie in the device's memory (ResidentImages), only labels, keys and the numbers of the samples are
// copied. Where the backend works on host memory nothing is copied, and the batch must stay until its work is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"
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
  // A buffer of the batch on both sides; one and the same where the backend works on host memory.
  struct Buffer {
    Memory host;
    Memory device;
  };

  Buffer make_buffer(std::size_t bytes, const char* purpose) const;
  static void fill(const Buffer& buffer, std::span<const std::byte> bytes);
  void upload(const Buffer& buffer, std::size_t bytes);

  Backend& backend_;
  std::size_t image_bytes_;
  std::int64_t max_samples_;
  const ResidentImages* resident_;
  bool mixed_;
  std::int64_t count_ = 0;
  // Empty where the batch's own memory serves.
  Buffer pixels_buffer_, labels_buffer_, rows_buffer_, keys_buffer_, other_labels_buffer_, label_weights_buffer_;
  const std::uint8_t* pixels_ = nullptr;
  const std::int32_t* labels_ = nullptr;
  const std::int32_t* rows_ = nullptr;
  const std::uint64_t* keys_ = nullptr;
  const std::int32_t* other_labels_ = nullptr;
  const float* label_weights_ = nullptr;
};

}  // namespace ddp
