#include "nccl/nccl_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <set>
#include <thread>

#include "nccl/nccl_rig.h"
#include "stand_ins/cuda/runtime.h"

namespace ddp::testing {
namespace {

// Waits up to 10 s, longer than anything here takes.
template <class Condition>
bool comes_true(Condition condition) {
  for (int i = 0; i < 10000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

// The first bucket must be reduced while backward is still blocked after it.
void reduces_a_bucket_while_backward_runs(Communicator& ranks) {
  const ReducerConfig config = model_config(Reduction::ring, true, ranks.size());
  const ReducerRig rig = make_nccl_reducer(ranks, config);
  const Bucket& first = config.buckets[0];
  const std::vector<float> values(config.elements, 1.0F);
  std::promise<void> open;
  std::atomic<bool> backward_done = false;

  rig.reducer->begin_step(0);
  float* gradient = rig.reducer->shard_gradient();
  rig.backend->queue().upload(gradient + first.begin, values.data(), first.elements() * sizeof(float));
  rig.reducer->ready(first.begin);
  enqueue(stream_of(*rig.backend), "backward", [gate = open.get_future().share()] { gate.wait(); });
  rig.backend->queue().upload(gradient, values.data(), first.begin * sizeof(float));
  enqueue(stream_of(*rig.backend), "end", [&] { backward_done = true; });
  rig.reducer->shard_done();
  rig.reducer->finish();

  const auto ended = nccl_sums_ended();
  EXPECT_TRUE(comes_true([&] { return ended() == 1; }));
  EXPECT_FALSE(backward_done);
  const auto sum = static_cast<float>(ranks.size());
  EXPECT_EQ(gradient[first.begin], sum) << "the sum is there";
  ranks.barrier();
  open.set_value();
  rig.reducer->wait();
  EXPECT_TRUE(backward_done);
  EXPECT_EQ(gradient_of(rig, config.elements), std::vector<float>(config.elements, sum));
}

// Work enqueued after join() waits for the sums; earlier work does not.
void join_holds_later_work_and_nothing_else(Communicator& ranks) {
  const Device device = make_nccl_device(ranks);
  cudaStream_t stream = stream_of(*device.backend);
  const Memory values = device.backend->memory().allocate(10 * sizeof(float), "the values of a test");
  device.backend->queue().synchronize();
  ranks.barrier();
  std::atomic<bool> before = false;
  std::size_t ended_at_join = 0;
  const auto ended = nccl_sums_ended();
  // The others start only after rank 0 has seen that its own work before join() needs no sum.
  if (ranks.rank() != 0) ranks.barrier();
  device.sums->all_reduce(values.at<float>(0), 10);
  enqueue(stream, "before", [&] { before = true; });
  if (ranks.rank() == 0) {
    EXPECT_TRUE(comes_true([&] { return before.load(); }));
    EXPECT_EQ(ended(), 0U);
    ranks.barrier();
  }
  device.sums->join();
  enqueue(stream, "after", [&] { ended_at_join = ended(); });
  device.sums->wait("the test");
  EXPECT_EQ(ended_at_join, 1U);
}

// The dependencies of a step that is captured as a graph, and no unnecessary ones.
void a_recorded_step_forks_and_joins(Communicator& ranks) {
  const ReducerConfig config = model_config(Reduction::ring, true, ranks.size());
  const ReducerRig rig = make_nccl_reducer(ranks, config);
  ASSERT_TRUE(rig.reducer->recordable());
  cudaStream_t stream = stream_of(*rig.backend);
  run_step(rig, ranks, config, 5, 0);

  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  rig.reducer->begin_step(1);
  rig.reducer->shard_gradient();
  const auto backward = [](std::size_t bucket) { return "backward " + std::to_string(bucket); };
  // Sums are numbered from the first step on.
  const auto sum = [&](std::size_t i) { return "sum " + std::to_string(config.buckets.size() + i); };
  for (std::size_t i = 0; i < config.buckets.size(); ++i) {
    enqueue(stream, backward(i), [] {});
    rig.reducer->ready(config.buckets[i].begin);
  }
  rig.reducer->shard_done();
  rig.reducer->finish();
  enqueue(stream, "update", [] {});
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  {
    const cuda::Graph owned(graph);
    const std::size_t count = config.buckets.size();
    ASSERT_GE(count, 3U);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < count; ++k) {
        EXPECT_EQ(depends(graph, sum(i), backward(k)), k <= i) << "bucket " << i << ", backward " << k;
        EXPECT_FALSE(depends(graph, backward(k), sum(i)));
      }
      EXPECT_TRUE(depends(graph, "update", sum(i)));
    }
  }
  rig.reducer->wait();
}

void a_recorded_step_is_replayed(Communicator& ranks) {
  const ReducerConfig config = model_config(Reduction::ring, true, 2 * ranks.size());
  const ReducerRig rig = make_nccl_reducer(ranks, config);
  std::vector<float> input(config.elements);
  std::vector<double> message(3);
  const Memory on_device = rig.backend->memory().allocate(message.size() * sizeof(double), "a message");
  std::set<float*> gradients;
  const auto step = [&] {
    for (int shard = 0; shard < 2; ++shard) {
      float* gradient = rig.reducer->shard_gradient();
      gradients.insert(gradient);
      for (const Bucket& bucket : config.buckets) {
        rig.backend->queue().upload(gradient + bucket.begin, input.data() + bucket.begin,
                                    bucket.elements() * sizeof(float));
        rig.reducer->ready(bucket.begin);
      }
      rig.reducer->shard_done();
    }
    rig.reducer->finish();
    rig.backend->queue().upload(on_device.data(), message.data(), on_device.bytes());
    rig.reducer->sum(on_device.at<double>(0), message.size());
    rig.backend->queue().download(message.data(), on_device.data(), on_device.bytes());
  };
  std::unique_ptr<Recording> recording;
  for (int number = 0; number < 12; ++number) {
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] = static_cast<float>(i % 100 + static_cast<std::size_t>(number + ranks.rank()));
    }
    for (double& value : message) value = number + ranks.rank();
    rig.reducer->begin_step(number);
    if (number == 1) recording = rig.backend->queue().record(step);
    // Values of the previous step would hide missing dependencies.
    for (float* gradient : gradients) std::memset(gradient, 0xFF, config.elements * sizeof(float));
    std::memset(on_device.data(), 0xFF, on_device.bytes());
    if (recording != nullptr) {
      recording->replay();
    } else {
      step();
    }
    rig.reducer->wait();
    const int n = ranks.size();
    std::vector<float> expected(config.elements);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = static_cast<float>(2 * n * (static_cast<int>(i % 100) + number) + n * (n - 1));
    }
    EXPECT_EQ(gradient_of(rig, config.elements), expected) << "step " << number;
    EXPECT_EQ(message, std::vector<double>(3, n * number + n * (n - 1) / 2));
  }
  recording.reset();  // before its communicator
}

// The host reads the result of a step while later ones are in flight.
void recorded_steps_are_in_flight_together(Communicator& ranks) {
  const ReducerConfig config = model_config(Reduction::ring, true, ranks.size());
  const ReducerRig rig = make_nccl_reducer(ranks, config);
  DeviceQueue& queue = rig.backend->queue();
  const Memory on_device = rig.backend->memory().allocate(sizeof(double), "a message");
  struct Slot {
    std::vector<float> input, sums;
    std::vector<double> message;
    std::unique_ptr<DeviceEvent> done;
    std::unique_ptr<Recording> recording;
  };
  std::vector<Slot> slots(3);
  for (Slot& each : slots) {
    each.done = queue.make_event();
    each.input.resize(config.elements);
    each.sums.resize(config.elements);
    each.message.resize(1);
  }
  const auto step = [&](Slot& slot) {
    float* gradient = rig.reducer->shard_gradient();
    for (const Bucket& bucket : config.buckets) {
      queue.upload(gradient + bucket.begin, slot.input.data() + bucket.begin, bucket.elements() * sizeof(float));
      rig.reducer->ready(bucket.begin);
    }
    rig.reducer->shard_done();
    rig.reducer->finish();
    queue.upload(on_device.data(), slot.message.data(), sizeof(double));
    rig.reducer->sum(on_device.at<double>(0), 1);
    queue.download(slot.message.data(), on_device.data(), sizeof(double));
    queue.download(slot.sums.data(), rig.reducer->gradient(), config.elements * sizeof(float));
  };
  const int n = ranks.size();
  const int all = 14;
  for (int number = 0, done = 0; done < all;) {
    const std::size_t place = static_cast<std::size_t>(number) % slots.size();
    if (number < all && number - done < 3) {
      Slot& slot = slots[place];
      for (std::size_t i = 0; i < config.elements; ++i) {
        slot.input[i] = static_cast<float>(static_cast<int>(i % 100) + number + ranks.rank());
      }
      slot.message[0] = number + ranks.rank();
      rig.reducer->begin_step(number);
      if (number > 0 && slot.recording == nullptr) slot.recording = queue.record([&] { step(slot); });
      if (slot.recording != nullptr) {
        slot.recording->replay();
      } else {
        step(slot);
      }
      queue.mark(*slots[place].done);
      ++number;
      continue;
    }
    const std::size_t first = static_cast<std::size_t>(done) % slots.size();
    rig.reducer->wait_for(*slots[first].done, done);
    EXPECT_EQ(slots[first].message[0], n * done + n * (n - 1) / 2) << "step " << done;
    for (std::size_t i = 0; i < config.elements; ++i) {
      ASSERT_EQ(slots[first].sums[i], static_cast<float>(n * (static_cast<int>(i % 100) + done) + n * (n - 1) / 2))
          << "step " << done << " element " << i;
    }
    ++done;
  }
  slots.clear();  // before their communicator
}

}  // namespace

const std::vector<NcclCase>& nccl_cases() {
  static const std::vector<NcclCase> cases = {
      {"ReducesABucketWhileBackwardRuns", reduces_a_bucket_while_backward_runs},
      {"JoinHoldsLaterWorkAndNothingElse", join_holds_later_work_and_nothing_else},
      {"ARecordedStepForksAndJoins", a_recorded_step_forks_and_joins},
      {"ARecordedStepIsReplayed", a_recorded_step_is_replayed},
      {"RecordedStepsAreInFlightTogether", recorded_steps_are_in_flight_together},
  };
  return cases;
}

}  // namespace ddp::testing
