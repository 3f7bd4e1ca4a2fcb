#include "train/step/batch_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "backend/host_queue.h"

namespace ddp {
namespace {

constexpr std::size_t kImage = 12;
constexpr std::int64_t kMost = 4;

// What is allocated for transfers, and what is uploaded.
struct Notes {
  bool uploaded_from(const void* host) const { return std::ranges::find(sources, host) != sources.end(); }

  std::vector<std::size_t> transfers;
  std::vector<const void*> sources;
};

class NotingMemory final : public HostMemory {
 public:
  NotingMemory(bool on_host, Notes& notes) : on_host_(on_host), notes_(notes) {}

  bool on_host() const override { return on_host_; }
  Memory allocate_for_transfer(std::size_t bytes, const std::string& purpose) override {
    notes_.transfers.push_back(bytes);
    return HostMemory::allocate_for_transfer(bytes, purpose);
  }

 private:
  bool on_host_;
  Notes& notes_;
};

class NotingQueue final : public HostQueue {
 public:
  explicit NotingQueue(Notes& notes) : notes_(notes) {}

  void upload(void* device, const void* host, std::size_t bytes) override {
    notes_.sources.push_back(host);
    HostQueue::upload(device, host, bytes);
  }

 private:
  Notes& notes_;
};

// A device whose memory is, or is not, that of the host.
DeviceContext noting_device(bool on_host, Notes& notes) {
  return {std::make_unique<NotingMemory>(on_host, notes), std::make_unique<HostQueue>(),
          std::make_unique<NotingQueue>(notes)};
}

struct StagedBatch {
  explicit StagedBatch(std::uint8_t first) {
    std::iota(pixels.begin(), pixels.end(), first);
    for (std::size_t i = 0; i < 3; ++i) edits[i].right = static_cast<std::int32_t>(first + i);
  }
  Batch batch() const {
    return {.pixels = pixels, .labels = labels, .count = 3, .indices = {}, .keys = keys, .edits = edits};
  }

  std::vector<std::uint8_t> pixels = std::vector<std::uint8_t>(3 * kImage);
  std::vector<std::int32_t> labels = {5, 6, 7};
  std::vector<std::uint64_t> keys = {1, 2, 3};
  std::vector<ImageEdit> edits = std::vector<ImageEdit>(3);
};

TEST(BatchStage, CopiesPixelsFromWhereTheyAre) {
  Notes notes;
  const DeviceContext device = noting_device(/*on_host=*/false, notes);
  BatchStage stage(device, {.image_bytes = kImage, .max_samples = kMost, .edited = true, .buffers = 2});
  EXPECT_EQ(stage.batches_in_use(), 2U);
  // Labels, keys and edits are copied twice, since their memory is not page-locked.
  for (const std::size_t bytes : notes.transfers) EXPECT_NE(bytes, kMost * kImage);
  EXPECT_EQ(notes.transfers.size(), 2U * 3U);
  const StagedBatch first(10);
  const StagedBatch second(90);
  std::vector<Samples> samples;
  for (const StagedBatch* each : {&first, &second}) {
    stage.set(each->batch(), samples.size());
    stage.enqueue();
    EXPECT_TRUE(notes.uploaded_from(each->pixels.data()));
    EXPECT_FALSE(notes.uploaded_from(each->labels.data()));
    samples.push_back(stage.samples(1, 2));
  }
  // Both are there at the same time.
  for (const StagedBatch* each : {&first, &second}) {
    const Samples& there = samples[each == &first ? 0 : 1];
    EXPECT_NE(there.pixels, each->pixels.data() + kImage);
    EXPECT_EQ(std::memcmp(there.pixels, each->pixels.data() + kImage, 2 * kImage), 0);
    EXPECT_TRUE(std::equal(there.labels, there.labels + 2, each->labels.begin() + 1));
    EXPECT_TRUE(std::equal(there.keys, there.keys + 2, each->keys.begin() + 1));
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(there.edits[i].right, each->edits[i + 1].right);
  }
}

TEST(BatchStage, CopiesNothingWhereDeviceMemoryIsHostMemory) {
  Notes notes;
  const DeviceContext device = noting_device(/*on_host=*/true, notes);
  BatchStage stage(device, {.image_bytes = kImage, .max_samples = kMost, .buffers = 3});
  EXPECT_EQ(stage.batches_in_use(), 1U);
  EXPECT_FALSE(stage.pixel_allocator());
  const StagedBatch batch(1);
  stage.set(batch.batch(), 2);
  stage.enqueue();
  EXPECT_EQ(stage.samples(0, 3).pixels, batch.pixels.data());
  EXPECT_EQ(stage.samples(1, 1).labels, batch.labels.data() + 1);
  EXPECT_TRUE(notes.transfers.empty());
  EXPECT_TRUE(notes.sources.empty());
}

TEST(BatchStage, TheMemoryOfALoaderOutlivesItsAllocator) {
  Notes notes;
  const DeviceContext device = noting_device(/*on_host=*/false, notes);
  const std::shared_ptr<std::uint8_t> memory = transfer_allocator(device.memory(), "the images")(100);
  EXPECT_EQ(notes.transfers, std::vector<std::size_t>{100});
  std::fill_n(memory.get(), 100, std::uint8_t{3});
  EXPECT_EQ(std::accumulate(memory.get(), memory.get() + 100, 0), 300);
}

}  // namespace
}  // namespace ddp
