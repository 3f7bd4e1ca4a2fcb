#include "train/batch_stage.h"

#include <algorithm>
#include <span>

#include "base/error.h"

namespace ddp {
namespace {

// The number of images copied to the device at a time.
constexpr std::int64_t kImagesAtOnce = 4096;

}  // namespace

ResidentImages::ResidentImages(DeviceQueue& queue, const Dataset& dataset) {
  const std::size_t image = dataset.shape().size();
  pixels_ = queue.allocate(static_cast<std::size_t>(dataset.size()) * image, "the images of the data set");
  const std::int64_t at_once = std::min(kImagesAtOnce, dataset.size());
  const Memory some =
      queue.allocate_for_transfer(static_cast<std::size_t>(at_once) * image, "the images on their way to the device");
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

std::unique_ptr<ResidentImages> make_resident(DeviceQueue& queue, const Dataset& dataset, bool fixed) {
  const std::size_t bytes = static_cast<std::size_t>(dataset.size()) * dataset.shape().size();
  if (!fixed || !worth_keeping_on_device(queue, bytes)) return nullptr;
  return std::make_unique<ResidentImages>(queue, dataset);
}

std::size_t device_bytes(const StageConfig& config) {
  std::size_t sample = sizeof(std::int32_t) + sizeof(std::uint64_t);  // label, key
  if (config.mixed) sample += sizeof(std::int32_t) + sizeof(float);   // second label, weight
  if (config.edited) sample += sizeof(ImageEdit);
  sample += config.resident != nullptr ? sizeof(std::int32_t) : config.image_bytes;
  return config.buffers * static_cast<std::size_t>(config.max_samples) * sample;
}

BatchStage::BatchStage(DeviceQueue& queue, const StageConfig& config) : queue_(queue), config_(config) {
  DDP_ASSERT(!config.mixed || config.resident == nullptr);
  DDP_ASSERT(!config.edited || config.resident != nullptr);
  const auto samples = static_cast<std::size_t>(config.max_samples);
  const auto staging = [&](std::size_t bytes, const char* purpose) {
    return Staging(queue, samples * bytes, purpose, config.buffers);
  };
  labels_ = staging(sizeof(std::int32_t), "the labels of a batch");
  keys_ = staging(sizeof(std::uint64_t), "the keys of a batch's samples");
  if (config.mixed) {
    other_labels_ = staging(sizeof(std::int32_t), "the second labels of a batch");
    label_weights_ = staging(sizeof(float), "the weights of a batch's labels");
  }
  if (config.resident != nullptr) {
    rows_ = staging(sizeof(std::int32_t), "the numbers of a batch's samples");
    row_numbers_.resize(samples);
    if (config.edited) edits_ = staging(sizeof(ImageEdit), "the edits of a batch's images");
  } else {
    pixels_ = staging(config.image_bytes, "the images of a batch");
  }
}

void BatchStage::set(const Batch& batch, std::size_t buffer) {
  DDP_ASSERT(batch.count <= config_.max_samples && buffer < config_.buffers);
  count_ = batch.count;
  const auto samples = static_cast<std::size_t>(count_);
  labels_.set(std::as_bytes(batch.labels), buffer);
  keys_.set(std::as_bytes(batch.keys), buffer);
  if (config_.resident != nullptr) {
    std::copy(batch.indices.begin(), batch.indices.end(), row_numbers_.begin());
    rows_.set(std::as_bytes(std::span(row_numbers_).first(samples)), buffer);
  } else {
    DDP_ASSERT(batch.pixels.size() == samples * config_.image_bytes);
    pixels_.set(std::as_bytes(batch.pixels), buffer);
  }
  if (config_.edited) {
    DDP_ASSERT(batch.edits.size() == samples);
    edits_.set(std::as_bytes(batch.edits), buffer);
  }
  if (!config_.mixed) return;
  DDP_ASSERT(batch.other_labels.size() == samples);
  other_labels_.set(std::as_bytes(batch.other_labels), buffer);
  label_weights_.set(std::as_bytes(batch.label_weights), buffer);
}

void BatchStage::enqueue() {
  if (count_ == 0) return;
  for (Staging* buffer : {&pixels_, &labels_, &rows_, &keys_, &other_labels_, &label_weights_, &edits_})
    buffer->enqueue();
  queue_.join_uploads();
}

Samples BatchStage::samples(std::int64_t first, std::int64_t count) const {
  DDP_ASSERT(first >= 0 && first + count <= count_);
  const auto* keys = keys_.at<std::uint64_t>();
  Samples some{nullptr, nullptr, labels_.at<std::int32_t>() + first, count, keys == nullptr ? nullptr : keys + first};
  if (config_.resident != nullptr) {
    some.pixels = config_.resident->pixels();
    some.rows = rows_.at<std::int32_t>() + first;
  } else {
    some.pixels = pixels_.at<std::uint8_t>() + static_cast<std::size_t>(first) * config_.image_bytes;
  }
  if (config_.edited) some.edits = edits_.at<ImageEdit>() + first;
  if (config_.mixed) {
    some.other_labels = other_labels_.at<std::int32_t>() + first;
    some.label_weights = label_weights_.at<float>() + first;
  }
  return some;
}

}  // namespace ddp
