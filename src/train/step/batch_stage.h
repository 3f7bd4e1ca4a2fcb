// Transfers a loaded batch to the memory of the backend.
//
//   BatchStage stage(backend.device(), {.image_bytes = image_bytes, .max_samples = max_samples, .resident = resident});
//   stage.set(batch, 0);
//   stage.enqueue();                           // enqueues the copies to the device
//   network.forward(Pass::training, state, stage.samples(first, count), results);
//
// If all images are in device memory (ResidentImages), only labels, keys and sample indices are copied. Otherwise the device
// copies the pixels from where the loader's threads have written them: these must stay valid until the work on the batch is
// done (LoaderConfig::held is batches_in_use()) and should be page-locked (LoaderConfig::allocate is pixel_allocator()).
// If device memory is host memory, nothing is copied (backend/staging.h), and all of the batch must stay valid.
//
// Note [Steps driven by the device]
// With resident images these are so few bytes that those of a whole epoch fit. Then the host copies them to tables on the
// device before the epoch, a row for each step, and each step takes the next row by a cursor on the device
// (TableRow). So nothing is copied from the host in a step, and a recorded step is the same at each replay:
//
//   stage.set_steps(batch, /*samples=*/256, /*steps=*/2);   // their batches, one after the other
//   stage.take_step(256, {});                               // samples() are those of the step at which the cursor is
//   network.forward(Pass::training, state, stage.samples(0, 256), results);
//   backend.math().copy_row(results, stage.cursor());       // moves it
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/device_context.h"
#include "backend/staging.h"
#include "backend/update/flat_math.h"
#include "data/pipeline/loader.h"
#include "data/sources/dataset.h"
#include "model/network.h"

namespace ddp {

// All images of a data set in device memory, as bytes.
class ResidentImages {
 public:
  // Reads the whole data set on this thread and copies it.
  ResidentImages(const DeviceContext& device, const Dataset& dataset);

  const std::uint8_t* pixels() const { return pixels_.at<std::uint8_t>(0); }
  std::size_t bytes() const { return pixels_.bytes(); }

 private:
  Memory pixels_;
};

// The images as they are read without augmentation; null if they are not `fixed`, or not worth keeping on the device.
std::unique_ptr<ResidentImages> make_resident(const DeviceContext& device, const Dataset& dataset, bool fixed);

struct StageConfig {
  std::size_t image_bytes = 0;
  std::int64_t max_samples = 0;              // of a batch
  const ResidentImages* resident = nullptr;  // null: batches contain pixels
  bool mixed = false;                        // batches contain second labels and weights
  bool edited = false;                       // batches contain edits of their images
  std::size_t buffers = 1;                   // batches that may be in use at the same time
  std::size_t steps = 0;                     // of resident images: batches that set_steps() takes; 0: none
};

// Device memory of such batches, where that is not host memory; with `steps`, whether or not the images are resident yet.
std::size_t device_bytes(const StageConfig& config);

class BatchStage {
 public:
  BatchStage(const DeviceContext& device, const StageConfig& config);

  // The batches whose pixels must be valid at the same time, if buffers are used in turn: those of the steps in flight.
  std::size_t batches_in_use() const { return std::max<std::size_t>(1, pixels_.buffers()); }
  // For LoaderConfig::allocate.
  std::function<std::shared_ptr<std::uint8_t>(std::size_t bytes)> pixel_allocator() const {
    return transfer_allocator(device_.memory(), "the images of a batch that is read ahead (--prefetch)");
  }
  // Sets the batch to copy to this buffer, from 0. All work on the batch that it held before must be done.
  void set(const Batch& batch, std::size_t buffer);
  // Enqueues the copies of the batch to the device, beside the work enqueued so far and before what follows. It is the
  // batch that samples() refers to. Cannot be recorded.
  void enqueue();
  // Whether set_steps() takes batches.
  bool takes_steps() const { return config_.steps > 0; }
  // Enqueues the copies of the batches of so many steps, which follow one another in `batches`: of `samples` each, the last
  // of which may have fewer. All work on those that it held before must be done. Cannot be recorded.
  void set_steps(const Batch& batches, std::int64_t samples, std::int64_t steps);
  // From here on samples() are those of the step at which the cursor is, `count` of them. The pass that is given the first
  // sample copies them all, and the row of `more`.
  void take_step(std::int64_t count, std::span<const TableColumn> more);
  // Null without steps. The last of these is followed by the first.
  TableCursor* cursor() const { return cursor_.at<TableCursor>(0); }
  // The samples [first, first + count) of the batch, in the backend's memory.
  Samples samples(std::int64_t first, std::int64_t count) const;

 private:
  // What one of the arrays of a batch is for the steps of an epoch.
  struct Column {
    Staging table;
    Memory row;  // of the step taken last
    std::size_t sample_bytes = 0;
  };
  Column column(std::size_t sample_bytes, const char* purpose);
  std::span<const std::byte> rows_of(const Batch& batch);
  std::array<Column*, 4> columns() { return {&step_labels_, &step_rows_, &step_keys_, &step_edits_}; }

  const DeviceContext& device_;
  StageConfig config_;
  std::int64_t count_ = 0;
  std::int64_t step_samples_ = 0;  // from one row of the tables to the next
  Samples held_;                   // all samples of the batch
  Staging pixels_, labels_, rows_, keys_, other_labels_, label_weights_, edits_;
  std::vector<std::int32_t> row_numbers_;  // indices of resident images
  Column step_labels_, step_rows_, step_keys_, step_edits_;
  std::array<TableColumn, kMostColumns> step_columns_;
  Memory cursor_, host_cursor_;
};

}  // namespace ddp
