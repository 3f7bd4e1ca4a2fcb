#include "train/step/batch_stage.h"

#include <algorithm>
#include <span>

#include "base/error.h"

namespace ddp {
namespace {

// The number of images copied to the device at a time.
constexpr std::int64_t kImagesAtOnce = 4096;

}  // namespace

ResidentImages::ResidentImages(const DeviceContext& device, const Dataset& dataset) {
  const std::size_t image = dataset.shape().size();
  DeviceQueue& queue = device.queue();
  pixels_ = device.memory().allocate(static_cast<std::size_t>(dataset.size()) * image, "the images of the data set");
  const std::int64_t at_once = std::min(kImagesAtOnce, dataset.size());
  const Memory some = device.memory().allocate_for_transfer(static_cast<std::size_t>(at_once) * image,
                                                            "the images on their way to the device");
  for (std::int64_t begin = 0; begin < dataset.size(); begin += at_once) {
    const std::int64_t count = std::min(at_once, dataset.size() - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      dataset.read(begin + i, {some.at<std::uint8_t>(static_cast<std::size_t>(i) * image), image});
    }
    queue.upload(pixels_.data() + static_cast<std::size_t>(begin) * image, some.data(),
                 static_cast<std::size_t>(count) * image);
    queue.synchronize();
  }
}

std::unique_ptr<ResidentImages> make_resident(const DeviceContext& device, const Dataset& dataset, bool fixed) {
  const std::size_t bytes = static_cast<std::size_t>(dataset.size()) * dataset.shape().size();
  if (!fixed || !worth_keeping_on_device(device.memory(), bytes)) return nullptr;
  return std::make_unique<ResidentImages>(device, dataset);
}

std::size_t device_bytes(const StageConfig& config) {
  std::size_t sample = sizeof(std::int32_t) + sizeof(std::uint64_t);  // label, key
  if (config.mixed) sample += sizeof(std::int32_t) + sizeof(float);   // second label, weight
  if (config.edited) sample += sizeof(ImageEdit);
  sample += config.resident != nullptr || config.steps > 0 ? sizeof(std::int32_t) : config.image_bytes;
  const std::size_t tables = config.steps == 0 ? 0 : config.steps + 1;
  return (config.buffers + tables) * static_cast<std::size_t>(config.max_samples) * sample;
}

BatchStage::BatchStage(const DeviceContext& device, const StageConfig& config) : device_(device), config_(config) {
  DDP_ASSERT(!config.mixed || (config.resident == nullptr && !config.edited));
  DDP_ASSERT(config.steps == 0 || config.resident != nullptr);
  const auto samples = static_cast<std::size_t>(config.max_samples);
  const auto staging = [&](std::size_t bytes, const char* purpose) {
    return Staging(device, samples * bytes, purpose, config.buffers);
  };
  labels_ = staging(sizeof(std::int32_t), "the labels of a batch");
  keys_ = staging(sizeof(std::uint64_t), "the keys of a batch's samples");
  if (config.mixed) {
    other_labels_ = staging(sizeof(std::int32_t), "the second labels of a batch");
    label_weights_ = staging(sizeof(float), "the weights of a batch's labels");
  }
  if (config.resident != nullptr) {
    rows_ = staging(sizeof(std::int32_t), "the numbers of a batch's samples");
    row_numbers_.resize(samples * std::max<std::size_t>(1, config.steps));
  } else {
    pixels_ =
        Staging(device, samples * config.image_bytes, "the images of a batch", config.buffers, StagingSource::kept);
  }
  if (config.edited) edits_ = staging(sizeof(ImageEdit), "the edits of a batch's images");
  if (config.steps == 0) return;
  step_labels_ = column(sizeof(std::int32_t), "the labels of an epoch");
  step_rows_ = column(sizeof(std::int32_t), "the numbers of an epoch's samples");
  step_keys_ = column(sizeof(std::uint64_t), "the keys of an epoch's samples");
  if (config.edited) step_edits_ = column(sizeof(ImageEdit), "the edits of an epoch's images");
  cursor_ = device.memory().allocate(sizeof(TableCursor), "the position in an epoch");
  host_cursor_ = device.memory().allocate_for_transfer(sizeof(TableCursor), "the position in an epoch");
}

BatchStage::Column BatchStage::column(std::size_t sample_bytes, const char* purpose) {
  const std::size_t row = static_cast<std::size_t>(config_.max_samples) * sample_bytes;
  return {Staging(device_, config_.steps * row, purpose), device_.memory().allocate(row, purpose), sample_bytes};
}

std::span<const std::byte> BatchStage::rows_of(const Batch& batch) {
  std::copy(batch.indices.begin(), batch.indices.end(), row_numbers_.begin());
  return std::as_bytes(std::span(row_numbers_).first(static_cast<std::size_t>(batch.count)));
}

void BatchStage::set(const Batch& batch, std::size_t buffer) {
  DDP_ASSERT(batch.count <= config_.max_samples && buffer < config_.buffers);
  count_ = batch.count;
  const auto samples = static_cast<std::size_t>(count_);
  labels_.set(std::as_bytes(batch.labels), buffer);
  keys_.set(std::as_bytes(batch.keys), buffer);
  if (config_.resident != nullptr) {
    rows_.set(rows_of(batch), buffer);
  } else {
    DDP_ASSERT(batch.pixels.size() == samples * config_.image_bytes);
    pixels_.set(std::as_bytes(batch.pixels), buffer);
  }
  if (config_.edited) {
    DDP_ASSERT(batch.edits.size() == samples);
    edits_.set(std::as_bytes(batch.edits), buffer);
  }
  if (config_.mixed) {
    DDP_ASSERT(batch.other_labels.size() == samples);
    other_labels_.set(std::as_bytes(batch.other_labels), buffer);
    label_weights_.set(std::as_bytes(batch.label_weights), buffer);
  }
  held_ = {.pixels = config_.resident != nullptr ? config_.resident->pixels() : pixels_.at<std::uint8_t>(),
           .rows = rows_.at<std::int32_t>(),
           .labels = labels_.at<std::int32_t>(),
           .keys = keys_.at<std::uint64_t>(),
           .other_labels = other_labels_.at<std::int32_t>(),
           .label_weights = label_weights_.at<float>(),
           .edits = edits_.at<ImageEdit>()};
}

void BatchStage::enqueue() {
  if (count_ == 0) return;
  for (Staging* buffer : {&pixels_, &labels_, &rows_, &keys_, &other_labels_, &label_weights_, &edits_})
    buffer->enqueue();
  device_.join_uploads();
}

void BatchStage::set_steps(const Batch& batches, std::int64_t samples, std::int64_t steps) {
  DDP_ASSERT(steps > 0 && steps <= static_cast<std::int64_t>(config_.steps) && samples <= config_.max_samples);
  DDP_ASSERT(batches.count > (steps - 1) * samples - samples && batches.count <= steps * samples);
  DDP_ASSERT(!config_.edited || std::ssize(batches.edits) == batches.count);
  step_samples_ = samples;
  step_labels_.table.set(std::as_bytes(batches.labels));
  step_rows_.table.set(rows_of(batches));
  step_keys_.table.set(std::as_bytes(batches.keys));
  step_edits_.table.set(std::as_bytes(batches.edits));
  for (Column* each : columns()) each->table.enqueue();
  *host_cursor_.at<TableCursor>(0) = {.row = 0, .rows = steps};
  device_.uploads().upload(cursor_.data(), host_cursor_.data(), sizeof(TableCursor));
  device_.join_uploads();
}

void BatchStage::take_step(std::int64_t count, std::span<const TableColumn> more) {
  DDP_ASSERT(count <= step_samples_ && more.size() + columns().size() <= kMostColumns);
  std::size_t used = 0;
  for (const Column* each : columns()) {
    const void* const table = each->table.at<std::byte>();
    const std::size_t bytes = static_cast<std::size_t>(step_samples_) * each->sample_bytes;
    if (table != nullptr) step_columns_.at(used++) = {table, bytes, each->row.data(), bytes};
  }
  for (const TableColumn& each : more) step_columns_.at(used++) = each;
  count_ = count;
  held_ = {.pixels = config_.resident->pixels(),
           .rows = step_rows_.row.at<std::int32_t>(0),
           .labels = step_labels_.row.at<std::int32_t>(0),
           .keys = step_keys_.row.at<std::uint64_t>(0),
           .edits = config_.edited ? step_edits_.row.at<ImageEdit>(0) : nullptr,
           .step = {std::span(step_columns_).first(used), cursor()}};
}

Samples BatchStage::samples(std::int64_t first, std::int64_t count) const {
  DDP_ASSERT(first >= 0 && first + count <= count_);
  const auto from = [&](auto* all) { return all == nullptr ? all : all + first; };
  // Resident images are found by their rows.
  const std::int64_t skipped = config_.resident != nullptr ? 0 : first * static_cast<std::int64_t>(config_.image_bytes);
  return {.pixels = held_.pixels == nullptr ? nullptr : held_.pixels + skipped,
          .rows = from(held_.rows),
          .labels = from(held_.labels),
          .count = count,
          .keys = from(held_.keys),
          .other_labels = from(held_.other_labels),
          .label_weights = from(held_.label_weights),
          .edits = from(held_.edits),
          .step = first == 0 ? held_.step : TableRow()};
}

}  // namespace ddp
