#include "train/batch_stage.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace ddp {
namespace {

// Images copied to the device at a time.
constexpr std::int64_t kImagesAtOnce = 4096;

}  // namespace

ResidentImages::ResidentImages(Backend& backend, const Dataset& dataset) {
  const std::size_t image = dataset.shape().size();
  pixels_ = backend.allocate(static_cast<std::size_t>(dataset.size()) * image, "the images of the data set");
  const std::int64_t at_once = std::min(kImagesAtOnce, dataset.size());
  const Memory some =
      backend.allocate_for_transfer(static_cast<std::size_t>(at_once) * image, "the images on their way to the device");
  for (std::int64_t begin = 0; begin < dataset.size(); begin += at_once) {
    const std::int64_t count = std::min(at_once, dataset.size() - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      dataset.read(begin + i, {some.at<std::uint8_t>(static_cast<std::size_t>(i) * image), image});
    }
    backend.upload(pixels_.data() + static_cast<std::size_t>(begin) * image, some.data(),
                   static_cast<std::size_t>(count) * image);
    backend.synchronize();
  }
}

BatchStage::BatchStage(Backend& backend, std::size_t image_bytes, std::int64_t max_samples,
                       const ResidentImages* resident, bool mixed)
    : backend_(backend), image_bytes_(image_bytes), max_samples_(max_samples), resident_(resident), mixed_(mixed) {
  DDP_ASSERT(!mixed || resident == nullptr);
  const auto samples = static_cast<std::size_t>(max_samples);
  if (resident != nullptr) {
    rows_buffer_ = make_buffer(samples * sizeof(std::int32_t), "the numbers of a batch's samples");
    rows_ = rows_buffer_.device.at<std::int32_t>(0);
    pixels_ = resident->pixels();
  }
  if (backend.on_host()) return;
  labels_buffer_ = make_buffer(samples * sizeof(std::int32_t), "the labels of a batch");
  labels_ = labels_buffer_.device.at<std::int32_t>(0);
  keys_buffer_ = make_buffer(samples * sizeof(std::uint64_t), "the keys of a batch's samples");
  if (mixed) {
    other_labels_buffer_ = make_buffer(samples * sizeof(std::int32_t), "the second labels of a batch");
    label_weights_buffer_ = make_buffer(samples * sizeof(float), "the weights of a batch's labels");
    other_labels_ = other_labels_buffer_.device.at<std::int32_t>(0);
    label_weights_ = label_weights_buffer_.device.at<float>(0);
  }
  if (resident != nullptr) return;
  pixels_buffer_ = make_buffer(samples * image_bytes, "the images of a batch");
  pixels_ = pixels_buffer_.device.at<std::uint8_t>(0);
}

BatchStage::Buffer BatchStage::make_buffer(std::size_t bytes, const char* purpose) const {
  return {backend_.allocate_for_transfer(bytes, purpose), backend_.allocate(bytes, purpose)};
}

void BatchStage::fill(const Buffer& buffer, std::span<const std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(buffer.host.data(), bytes.data(), bytes.size());
}

void BatchStage::set(const Batch& batch) {
  DDP_ASSERT(batch.count <= max_samples_);
  count_ = batch.count;
  if (resident_ != nullptr) {
    std::copy(batch.indices.begin(), batch.indices.end(), rows_buffer_.host.at<std::int32_t>(0));
  } else {
    DDP_ASSERT(batch.pixels.size() == static_cast<std::size_t>(count_) * image_bytes_);
  }
  DDP_ASSERT(!mixed_ || batch.other_labels.size() == static_cast<std::size_t>(count_));
  if (backend_.on_host()) {
    labels_ = batch.labels.data();
    keys_ = batch.keys.empty() ? nullptr : batch.keys.data();
    if (mixed_) {
      other_labels_ = batch.other_labels.data();
      label_weights_ = batch.label_weights.data();
    }
    if (resident_ == nullptr) pixels_ = batch.pixels.data();
  } else if (count_ > 0) {
    keys_ = batch.keys.empty() ? nullptr : keys_buffer_.device.at<std::uint64_t>(0);
    fill(labels_buffer_, std::as_bytes(batch.labels));
    fill(keys_buffer_, std::as_bytes(batch.keys));
    fill(other_labels_buffer_, std::as_bytes(batch.other_labels));
    fill(label_weights_buffer_, std::as_bytes(batch.label_weights));
    if (resident_ == nullptr) fill(pixels_buffer_, std::as_bytes(batch.pixels));
  }
}

void BatchStage::upload(const Buffer& buffer, std::size_t bytes) {
  if (buffer.device.bytes() > 0) backend_.upload(buffer.device.data(), buffer.host.data(), bytes);
}

void BatchStage::enqueue() {
  if (count_ == 0) return;
  const auto samples = static_cast<std::size_t>(count_);
  upload(pixels_buffer_, samples * image_bytes_);
  upload(labels_buffer_, samples * sizeof(std::int32_t));
  upload(rows_buffer_, samples * sizeof(std::int32_t));
  if (keys_ != nullptr) upload(keys_buffer_, samples * sizeof(std::uint64_t));
  upload(other_labels_buffer_, samples * sizeof(std::int32_t));
  upload(label_weights_buffer_, samples * sizeof(float));
}

Samples BatchStage::samples(std::int64_t first, std::int64_t count) const {
  DDP_ASSERT(first >= 0 && first + count <= count_);
  Samples some{pixels_, nullptr, labels_ + first, count, keys_ == nullptr ? nullptr : keys_ + first};
  if (resident_ != nullptr) {
    some.rows = rows_ + first;
  } else {
    some.pixels += static_cast<std::size_t>(first) * image_bytes_;
  }
  if (mixed_) {
    some.other_labels = other_labels_ + first;
    some.label_weights = label_weights_ + first;
  }
  return some;
}

}  // namespace ddp
