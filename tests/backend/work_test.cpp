// Memory and the order of execution.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "backend/backend_case.h"
#include "backend/device_values.h"
#include "base/error.h"

namespace ddp {
namespace {

using Work = EveryBackend;

TEST_P(Work, MemoryIsZero) {
  const Memory memory = backend().memory().allocate(100'003, "the test values");
  ASSERT_EQ(memory.bytes(), 100'003U);
  std::vector<std::byte> bytes(memory.bytes(), std::byte{1});
  backend().queue().download(bytes.data(), memory.data(), bytes.size());
  backend().queue().synchronize();
  EXPECT_EQ(bytes, std::vector<std::byte>(bytes.size()));
  const Memory transfer = backend().memory().allocate_for_transfer(5000, "the test values");
  EXPECT_TRUE(std::all_of(transfer.data(), transfer.data() + 5000, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(backend().memory().allocate(0, "nothings").bytes(), 0U);
}

TEST_P(Work, TooMuchMemoryIsAnErrorThatSaysWhatFor) {
  try {
    static_cast<void>(backend().memory().allocate(~std::size_t{0} / 2, "the test values"));
    FAIL() << "this machine has more memory than there is";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::out_of_memory);
    EXPECT_EQ(std::string(error.what()).find("the test values need"), 0U) << error.what();
  }
}

TEST_P(Work, CopiesAndFillsHappenInOrder) {
  std::vector<int> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 1);
  const std::size_t bytes = numbers.size() * sizeof(int);
  const Memory memory = backend().memory().allocate(bytes, "the test values");
  std::vector<int> before(numbers.size());
  std::vector<int> after(numbers.size());
  backend().queue().upload(memory.data(), numbers.data(), bytes);
  backend().queue().download(before.data(), memory.data(), bytes);
  backend().math().fill_zero(memory.data() + 400, 1200);
  backend().queue().download(after.data(), memory.data(), bytes);
  backend().queue().synchronize();
  EXPECT_EQ(before, numbers);
  std::fill(numbers.begin() + 100, numbers.begin() + 400, 0);
  EXPECT_EQ(after, numbers);
}

TEST_P(Work, EventsKeepTheTime) {
  const DeviceArray<float> values(backend(), std::vector<float>(1'000'000, 1.0F));
  DeviceQueue& queue = backend().queue();
  const std::unique_ptr<DeviceEvent> begin = queue.make_event();
  const std::unique_ptr<DeviceEvent> end = queue.make_event();
  queue.mark(*begin);
  backend().math().add(values.data(), values.data(), 1'000'000);
  queue.mark(*end);
  queue.synchronize();
  EXPECT_GT(end->seconds_since(*begin), 0);
  EXPECT_LT(end->seconds_since(*begin), 10);
}

// A wait for an event is one for the work before it, whatever is enqueued behind.
TEST_P(Work, AnEventIsWaitedFor) {
  const std::unique_ptr<DeviceEvent> event = backend().queue().make_event();
  EXPECT_TRUE(event->reached());  // never marked
  const std::vector<float> ones(1000, 1.0F);
  const DeviceArray<float> sum(backend(), ones);
  std::vector<float> seen(ones.size());
  for (int round = 1; round <= 3; ++round) {
    backend().math().add(sum.data(), sum.data(), ones.size());
    backend().queue().download(seen.data(), sum.data(), seen.size() * sizeof(float));
    backend().queue().mark(*event);
    // More of the same, whose result is not downloaded.
    for (int i = 0; i < 3; ++i) backend().math().add(sum.data(), sum.data(), ones.size());
    if (round == 2) {
      while (!event->reached()) continue;
    } else {
      event->wait();
    }
    EXPECT_EQ(seen.front(), std::exp2(4.0F * static_cast<float>(round) - 3.0F));
    EXPECT_EQ(seen.back(), seen.front());
  }
}

// Uploads beside the queue leave its earlier work alone, and its later work waits for them.
TEST_P(Work, UploadsBesideTheQueueAreJoined) {
  const std::size_t count = 50'000;
  const std::size_t bytes = count * sizeof(float);
  const DeviceArray<float> sum(backend(), std::vector<float>(count, 1.0F));
  const DeviceArray<float> first(backend(), std::vector<float>(count, 100.0F));
  const DeviceArray<float> second(backend(), std::vector<float>(count, 100.0F));
  const std::vector<float> tens(count, 10.0F);
  const std::vector<float> twenties(count, 20.0F);
  for (int i = 0; i < 5; ++i) backend().math().add(sum.data(), sum.data(), count);
  backend().device().uploads().upload(first.data(), tens.data(), bytes);
  backend().device().join_uploads();
  backend().math().add(sum.data(), first.data(), count);
  backend().device().uploads().upload(second.data(), twenties.data(), bytes);
  for (int i = 0; i < 3; ++i) backend().math().add(sum.data(), sum.data(), count);
  backend().device().join_uploads();
  backend().math().add(sum.data(), second.data(), count);
  EXPECT_EQ(sum.get(), std::vector<float>(count, (32.0F + 10.0F) * 8 + 20.0F));
}

// Recording executes nothing; each replay executes everything.
TEST_P(Work, RecordingsAreReplayed) {
  const DeviceArray<float> sum(backend(), {1, 2, 3});
  const DeviceArray<float> addend(backend(), {10, 20, 30});
  const std::unique_ptr<DeviceEvent> begin = backend().queue().make_event();
  const std::unique_ptr<DeviceEvent> end = backend().queue().make_event();
  const auto recording = backend().queue().record([&] {
    backend().queue().mark(*begin);
    backend().math().add(sum.data(), addend.data(), 3);
    backend().math().add(addend.data(), addend.data(), 3);
    backend().queue().mark(*end);
  });
  if (recording == nullptr) {
    EXPECT_TRUE(backend().memory().on_host()) << "a GPU records";
    return;
  }
  EXPECT_EQ(sum.get(), (std::vector<float>{1, 2, 3}));
  recording->replay();
  recording->replay();
  EXPECT_EQ(sum.get(), (std::vector<float>{31, 62, 93}));
  EXPECT_EQ(addend.get(), (std::vector<float>{40, 80, 120}));
  EXPECT_GT(end->seconds_since(*begin), 0);
}

// The backend keeps working after an error during recording.
TEST_P(Work, AFailedRecordingIsForgotten) {
  const DeviceArray<float> sum(backend(), {1, 2, 3});
  if (backend().queue().record([] {}) == nullptr) return;
  EXPECT_THROW(static_cast<void>(backend().queue().record([&] {
                 backend().math().add(sum.data(), sum.data(), 3);
                 throw Error(ExitCode::data, "on purpose");
               })),
               Error);
  backend().math().add(sum.data(), sum.data(), 3);
  EXPECT_EQ(sum.get(), (std::vector<float>{2, 4, 6}));
}

TEST_P(Work, ItSaysWhatItIs) {
  EXPECT_FALSE(backend().ops().traits().description.empty());
  EXPECT_FALSE(backend().ops().traits().fingerprint.empty());
  EXPECT_EQ(backend().ops().traits().fingerprint.find('\n'), std::string::npos);
}

DDP_ON_EVERY_BACKEND(On, Work);

}  // namespace
}  // namespace ddp
