#include "data/pipeline/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>

#include "base/random.h"
#include "data/pipeline/augmentation.h"
#include "data/pipeline/mixup.h"
#include "data/pipeline/sample_key.h"
#include "data/pipeline/sampler.h"
#include "data/sources/memory_dataset.h"
#include "unit/data/allocations.h"
#include "unit/data/files.h"

namespace ddp {
namespace {

constexpr Shape kShape = {2, 3, 5};

std::uint8_t pixel_of(std::int64_t index, std::size_t place) {
  return static_cast<std::uint8_t>(index * 7 + static_cast<std::int64_t>(place) * 13);
}
int label_of(std::int64_t index) { return static_cast<int>(index % 11); }
std::uint64_t key_of(std::uint32_t index, std::size_t batch) { return index * std::uint64_t{1} << 32U | batch; }

// Images identified by their index, from a source that is randomly slow, can fail, and counts its reads.
class TestDataset : public Dataset {
 public:
  explicit TestDataset(std::int64_t size, std::int64_t broken = -1)
      : Dataset("test", size, kShape, 11), broken_(broken) {}

  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    if (index == broken_) throw Error(ExitCode::data, "sample " + std::to_string(index) + " is broken");
    if (index % 5 == 0) std::this_thread::yield();
    if (index % 37 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = pixel_of(index, i);
    ++reads_;
    return index;
  }
  int label(std::int64_t index) const override { return label_of(index); }
  std::int64_t reads() const { return reads_; }

 private:
  std::int64_t broken_;
  mutable std::atomic<std::int64_t> reads_ = 0;
};

// A sequence of batches with the given indices.
class Sequence {
 public:
  explicit Sequence(std::vector<std::vector<std::uint32_t>> batches) : batches_(std::move(batches)) {}

  Loader::NextBatch source() {
    position_ = 0;
    return [this]() -> std::optional<BatchRequest> {
      if (position_ == batches_.size()) return std::nullopt;
      const std::vector<std::uint32_t>& indices = batches_[position_++];
      keys_.clear();
      for (const std::uint32_t index : indices) keys_.push_back(key_of(index, position_));
      return BatchRequest{indices, keys_};
    };
  }
  const std::vector<std::vector<std::uint32_t>>& batches() const { return batches_; }
  std::size_t position() const { return position_; }

 private:
  std::vector<std::vector<std::uint32_t>> batches_;
  std::vector<std::uint64_t> keys_;  // of the current batch
  std::size_t position_ = 0;
};

Sequence random_sequence(int count, std::int64_t max_batch, std::int64_t samples, std::uint64_t seed) {
  Random random(seed, 0);
  std::vector<std::vector<std::uint32_t>> batches(static_cast<std::size_t>(count));
  for (auto& batch : batches) {
    batch.resize(static_cast<std::size_t>(random.below(static_cast<std::uint64_t>(max_batch) + 1)));
    for (auto& index : batch) index = static_cast<std::uint32_t>(random.below(static_cast<std::uint64_t>(samples)));
  }
  return Sequence(std::move(batches));
}

void expect_batch(const Batch& batch, const std::vector<std::uint32_t>& indices) {
  ASSERT_EQ(batch.count, static_cast<std::int64_t>(indices.size()));
  ASSERT_EQ(batch.labels.size(), indices.size());
  ASSERT_EQ(batch.pixels.size(), indices.size() * kShape.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    EXPECT_EQ(batch.labels[i], label_of(indices[i]));
    for (std::size_t place = 0; place < kShape.size(); ++place) {
      ASSERT_EQ(batch.pixels[i * kShape.size() + place], pixel_of(indices[i], place)) << "sample " << i;
    }
  }
}

class LoaderOf : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  static LoaderConfig config(std::int64_t max_batch) {
    return {.max_batch = max_batch, .workers = std::get<0>(GetParam()), .prefetch = std::get<1>(GetParam())};
  }
};

INSTANTIATE_TEST_SUITE_P(WorkersAndPrefetch, LoaderOf,
                         testing::Combine(testing::Values(0, 1, 2, 5), testing::Values(1, 2, 7)),
                         [](const auto& parameters) {
                           return "Workers" + std::to_string(std::get<0>(parameters.param)) + "Prefetch" +
                                  std::to_string(std::get<1>(parameters.param));
                         });

TEST_P(LoaderOf, GivesEveryBatchInOrderEmptyOnesToo) {
  const TestDataset data(200);
  Sequence sequence = random_sequence(60, 33, 200, 4);
  Loader loader(data, config(33), sequence.source());
  for (const auto& indices : sequence.batches()) {
    const std::optional<Batch> batch = loader.next();
    ASSERT_TRUE(batch.has_value());
    expect_batch(*batch, indices);
  }
  EXPECT_FALSE(loader.next().has_value());
  EXPECT_FALSE(loader.next().has_value());
}

TEST_P(LoaderOf, GivesTheKeysOfEachBatchOrNone) {
  const TestDataset data(200);
  Sequence sequence = random_sequence(30, 17, 200, 6);
  Loader loader(data, config(17), sequence.source());
  for (std::size_t b = 0; b < sequence.batches().size(); ++b) {
    const std::optional<Batch> batch = loader.next();
    ASSERT_TRUE(batch.has_value());
    std::vector<std::uint64_t> expected;
    for (const std::uint32_t index : sequence.batches()[b]) expected.push_back(key_of(index, b + 1));
    EXPECT_THAT(batch->keys, testing::ElementsAreArray(expected));
  }
  const std::vector<std::uint32_t> indices = {1, 2};
  loader.restart([&indices] { return BatchRequest{indices, {}}; });
  EXPECT_TRUE(loader.next()->keys.empty());
}

TEST_P(LoaderOf, EndsAtOnceWhereNothingComes) {
  const TestDataset data(10);
  Sequence sequence({});
  Loader loader(data, config(4), sequence.source());
  EXPECT_FALSE(loader.next().has_value());
}

TEST_P(LoaderOf, ABatchStaysAsItIsUntilTheNextCall) {
  const TestDataset data(200);
  Sequence sequence = random_sequence(20, 16, 200, 5);
  Loader loader(data, config(16), sequence.source());
  for (const auto& indices : sequence.batches()) {
    const std::optional<Batch> batch = loader.next();
    ASSERT_TRUE(batch.has_value());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // gives workers time to overwrite it by mistake
    expect_batch(*batch, indices);
  }
}

TEST_P(LoaderOf, HeldBatchesStayAsTheyAreWhileLaterOnesAreRead) {
  const TestDataset data(200);
  for (const std::size_t held : {2U, 3U, 6U}) {
    Sequence sequence = random_sequence(20, 16, 200, held);
    LoaderConfig holds = config(16);
    holds.held = held;
    Loader loader(data, holds, sequence.source());
    std::vector<Batch> taken;
    for (std::size_t b = 0; b < sequence.batches().size(); ++b) {
      const std::optional<Batch> batch = loader.next();
      ASSERT_TRUE(batch.has_value());
      taken.push_back(*batch);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // gives workers time to overwrite them by mistake
      for (std::size_t i = b + 1 - std::min(held, b + 1); i <= b; ++i) expect_batch(taken[i], sequence.batches()[i]);
    }
    EXPECT_FALSE(loader.next().has_value());
  }
}

TEST_P(LoaderOf, ReadsIntoTheMemoryThatItIsGiven) {
  const TestDataset data(200);
  Sequence sequence = random_sequence(30, 16, 200, 9);
  std::vector<std::weak_ptr<std::vector<std::uint8_t>>> given;
  LoaderConfig elsewhere = config(16);
  elsewhere.held = 2;
  elsewhere.allocate = [&given](std::size_t bytes) -> std::shared_ptr<std::uint8_t> {
    EXPECT_EQ(bytes, 16 * kShape.size());
    const auto memory = std::make_shared<std::vector<std::uint8_t>>(bytes);
    given.push_back(memory);
    return {memory, memory->data()};
  };
  {
    Loader loader(data, elsewhere, sequence.source());
    const auto [workers, prefetch] = GetParam();
    ASSERT_EQ(given.size(), static_cast<std::size_t>(workers == 0 ? 0 : prefetch) + elsewhere.held);
    for (std::size_t b = 0; b < sequence.batches().size(); ++b) {
      const std::optional<Batch> batch = loader.next();
      ASSERT_TRUE(batch.has_value());
      EXPECT_EQ(batch->pixels.data(), given[b % given.size()].lock()->data());
      expect_batch(*batch, sequence.batches()[b]);
    }
  }
  for (const auto& memory : given) EXPECT_TRUE(memory.expired());
}

// Where another sample replaces one that cannot be read, as of a folder, the edit is that of the original's key.
class ReplacingDataset : public TestDataset {
 public:
  ReplacingDataset() : TestDataset(200) {}
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    return TestDataset::read(index == 13 ? 14 : index, pixels);
  }
};

// The edits make of the pixels what the data set's augmentation would.
TEST_P(LoaderOf, DrawsEditsForImagesThatItReadsAsTheyAre) {
  const Augmentation augmentation{
      .crop_padding = 1, .crop_reflects = true, .flip = true, .cutout = 2, .erasing = 0.5, .fill = {3, 250}};
  const AugmentedDataset data(std::make_unique<ReplacingDataset>(), augmentation);
  Sequence sequence({{13, 2, 3, 4, 5}, {}, {6, 199, 13}});
  LoaderConfig edited = config(5);
  edited.training = true;
  edited.edits = &augmentation;
  Loader loader(data, edited, sequence.source());
  const EditRules rules{.height = 3, .width = 5, .reflects = true};
  for (std::size_t b = 0; b < sequence.batches().size(); ++b) {
    const std::optional<Batch> batch = loader.next();
    const std::vector<std::uint32_t>& indices = sequence.batches()[b];
    ASSERT_EQ(batch->edits.size(), indices.size());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      std::vector<std::uint8_t> expected(kShape.size());
      const std::int64_t found = data.read_training(indices[i], key_of(indices[i], b + 1), expected);
      EXPECT_EQ(batch->labels[i], label_of(found));
      std::vector<std::uint8_t> actual;
      for (std::size_t c = 0; c < 2; ++c) {
        const std::uint8_t* plane = &batch->pixels[i * kShape.size() + c * 15];
        for (std::int32_t p = 0; p < 15; ++p) {
          actual.push_back(edited_byte(plane, rules, batch->edits[i], p / 5, p % 5, augmentation.fill[c]));
        }
      }
      EXPECT_EQ(actual, expected) << "sample " << indices[i];
    }
  }
}

TEST_P(LoaderOf, StopsAtAnyTime) {
  const TestDataset data(200);
  for (int taken = 0; taken < 6; ++taken) {
    Sequence sequence = random_sequence(10, 64, 200, static_cast<std::uint64_t>(taken));
    Loader loader(data, config(64), sequence.source());
    for (int i = 0; i < taken; ++i) loader.next();
  }
}

TEST_P(LoaderOf, AnErrorSurfacesAtItsBatchAndStays) {
  const TestDataset data(100, 50);
  Sequence sequence({{1, 2, 3}, {4, 5}, {6, 50, 7}, {8}});
  Loader loader(data, config(3), sequence.source());
  expect_batch(*loader.next(), {1, 2, 3});
  expect_batch(*loader.next(), {4, 5});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(error_of(ExitCode::data, [&loader] { loader.next(); }), "sample 50 is broken");
  }
  Sequence good({{9, 10}});
  loader.restart(good.source());
  expect_batch(*loader.next(), {9, 10});
  EXPECT_FALSE(loader.next().has_value());
}

TEST_P(LoaderOf, RestartsInTheMiddleAndAfterTheEnd) {
  const TestDataset data(200);
  Sequence sequence = random_sequence(12, 20, 200, 8);
  Loader loader(data, config(20), sequence.source());
  for (const std::size_t taken : {0U, 1U, 5U, 12U, 13U, 2U}) {
    loader.restart(sequence.source());
    for (std::size_t i = 0; i < taken; ++i) {
      const std::optional<Batch> batch = loader.next();
      ASSERT_EQ(batch.has_value(), i < sequence.batches().size());
      if (batch) expect_batch(*batch, sequence.batches()[i]);
    }
  }
}

TEST_P(LoaderOf, AnErrorOfTheSourceSurfaces) {
  const TestDataset data(10);
  Loader loader(data, config(4), []() -> std::optional<BatchRequest> { throw std::runtime_error("no indices"); });
  EXPECT_THROW(loader.next(), std::runtime_error);
}

TEST_P(LoaderOf, IndicesOutOfRangeAndLargeBatchesAreRefused) {
  const TestDataset data(10);
  Sequence out_of_range({{3, 10}});
  Loader loader(data, config(4), out_of_range.source());
  error_of(ExitCode::internal, [&loader] { loader.next(); });
  Sequence large({{0, 1, 2, 3, 4}});
  loader.restart(large.source());
  error_of(ExitCode::internal, [&loader] { loader.next(); });
}

TEST_P(LoaderOf, AllocatesNothingPerBatch) {
  const MemoryDataset data("memory", kShape, 11, Bytes(300 * kShape.size()), Bytes(300));
  Sampler sampler(300, 1);
  sampler.begin_epoch(0);
  std::size_t step = 0;
  Loader loader(data, config(32), [&]() -> std::optional<BatchRequest> {
    ++step;
    return BatchRequest{sampler.order().subspan(step % 250, 1 + step % 32), {}};
  });
  for (int i = 0; i < 20; ++i) loader.next();
  const std::size_t before = allocations().count;
  std::int64_t samples = 0;
  for (int i = 0; i < 500; ++i) samples += loader.next()->count;
  EXPECT_EQ(allocations().count, before);
  EXPECT_GT(samples, 500);
}

// Images and labels whose values reveal the mixing.
class LevelDataset : public Dataset {
 public:
  LevelDataset() : Dataset("levels", 100, kShape, 100) {}
  std::int64_t read(std::int64_t /*index*/, std::span<std::uint8_t> /*pixels*/) const override {
    throw Error(ExitCode::internal, "training reads are wanted");
  }
  std::int64_t read_training(std::int64_t index, std::uint64_t key, std::span<std::uint8_t> pixels) const override {
    EXPECT_EQ(key, sample_key(5, 0, static_cast<std::uint32_t>(index)));
    std::fill(pixels.begin(), pixels.end(), static_cast<std::uint8_t>(2 * index));
    return index == 13 ? 14 : index;  // another sample replaces this one
  }
  int label(std::int64_t index) const override { return static_cast<int>(index); }
};

TEST_P(LoaderOf, MixesPartnersAndKeepsWhoHasNone) {
  const LevelDataset data;
  const std::vector<std::uint32_t> indices = {40, 13, 7, 90, 55};
  const std::vector<std::uint32_t> partners = {3, 2, 1, 0, 4};
  std::vector<std::uint64_t> keys;
  for (const std::uint32_t index : indices) keys.push_back(sample_key(5, 0, index));
  LoaderConfig with_mixup = config(5);
  with_mixup.training = true;
  with_mixup.mixup = 0.7;
  Loader loader(data, with_mixup, [&] { return BatchRequest{indices, keys, partners}; });
  const std::vector<int> labels = {40, 14, 7, 90, 55};
  for (int step = 0; step < 20; ++step) {
    const std::optional<Batch> batch = loader.next();
    ASSERT_EQ(batch->count, 5);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(batch->labels[i], labels[i]);
      EXPECT_EQ(batch->other_labels[i], labels[partners[i]]);
      const float weight = i == 4 ? 1.0F : static_cast<float>(mixing_share(0.7, keys[i])) / 256.0F;
      EXPECT_EQ(batch->label_weights[i], weight);
      const auto mine = static_cast<float>(2 * indices[i]);
      const auto other = static_cast<float>(2 * indices[partners[i]]);
      for (std::size_t p = 0; p < kShape.size(); ++p) {
        ASSERT_NEAR(batch->pixels[i * kShape.size() + p], weight * mine + (1 - weight) * other, 0.501F) << i;
      }
    }
  }
}

// CutMix exchanges parts of the two images, whose share is the weight of the other label.
TEST_P(LoaderOf, CutsPartnersAndWeighsTheirLabelsByArea) {
  const LevelDataset data;
  const std::vector<std::uint32_t> indices = {40, 13, 7, 90, 55};
  const std::vector<std::uint32_t> partners = {3, 2, 1, 0, 4};
  std::vector<std::uint64_t> keys;
  for (const std::uint32_t index : indices) keys.push_back(sample_key(5, 0, index));
  LoaderConfig cuts = config(5);
  cuts.training = true;
  cuts.cutmix = 1;
  Loader loader(data, cuts, [&] { return BatchRequest{indices, keys, partners}; });
  for (int step = 0; step < 5; ++step) {
    const std::optional<Batch> batch = loader.next();
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(batch->other_labels[i], batch->labels[partners[i]]);
      std::size_t own = 0;
      for (std::size_t p = 0; p < kShape.size(); ++p) {
        const std::uint32_t level = batch->pixels[i * kShape.size() + p];
        ASSERT_TRUE(level == 2 * indices[i] || level == 2 * indices[partners[i]]);
        own += level == 2 * indices[i] ? 1 : 0;
      }
      EXPECT_FLOAT_EQ(batch->label_weights[i], static_cast<float>(own) / static_cast<float>(kShape.size())) << i;
    }
  }
}

TEST_P(LoaderOf, MixesAWholeBatchByOneWeight) {
  const LevelDataset data;
  const std::vector<std::uint32_t> indices = {40, 13, 7, 90, 55};
  const std::vector<std::uint32_t> partners = {3, 2, 1, 0, 4};
  std::vector<std::uint64_t> keys;
  for (const std::uint32_t index : indices) keys.push_back(sample_key(5, 0, index));
  LoaderConfig mixed = config(5);
  mixed.training = true;
  mixed.mixup = 1;
  mixed.mixes_by_batch = true;
  std::uint64_t batches = 0;
  Loader loader(data, mixed, [&] { return BatchRequest{indices, keys, partners, batch_key(5, 0, ++batches)}; });
  for (int step = 1; step < 10; ++step) {
    const std::optional<Batch> batch = loader.next();
    const float weight = static_cast<float>(mixing_share(1, batch_key(5, 0, step))) / 256.0F;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(batch->label_weights[i], weight) << step << " " << i;
    EXPECT_EQ(batch->label_weights[4], 1.0F);
  }
}

// While the caller has the first batches, workers read exactly `prefetch` more.
TEST(Loader, ReadsAheadByPrefetch) {
  for (const auto& [prefetch, held] : {std::pair(1, 1), {3, 1}, {1, 4}, {3, 2}}) {
    const TestDataset data(100);
    Sequence sequence(std::vector<std::vector<std::uint32_t>>(10, {1, 2, 3, 4}));
    Loader loader(data, {.max_batch = 4, .workers = 2, .prefetch = prefetch, .held = static_cast<std::size_t>(held)},
                  sequence.source());
    EXPECT_EQ(data.reads(), 0);
    for (int taken = 1; taken <= 3; ++taken) {
      loader.next();
      const std::int64_t expected = 4 * std::int64_t{taken + prefetch};
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (data.reads() < expected && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_EQ(data.reads(), expected);
      EXPECT_EQ(sequence.position(), static_cast<std::size_t>(taken + prefetch));
    }
  }
}

TEST(Loader, WithoutWorkersReadsOnlyWhatIsAskedFor) {
  const TestDataset data(100);
  Sequence sequence(std::vector<std::vector<std::uint32_t>>(10, {1, 2, 3, 4}));
  Loader loader(data, {.max_batch = 4, .workers = 0, .prefetch = 5, .held = 3}, sequence.source());
  loader.next();
  EXPECT_EQ(data.reads(), 4);
  EXPECT_EQ(sequence.position(), 1U);
}

}  // namespace
}  // namespace ddp
