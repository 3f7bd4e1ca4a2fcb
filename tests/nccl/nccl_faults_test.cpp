// An NCCL failure on one rank ends all ranks in time, with a message that says where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "comm/transport/threads.h"
#include "nccl/nccl_rig.h"
#include "stand_ins/cuda/runtime.h"
#include "support/errors.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::NcclFaults;
using testing::ReducerRig;

constexpr double kTimeout = 0.5;
constexpr std::int64_t kStep = 7;

// Connects three ranks, injects `faults` on rank `faulty`, and passes every rank's error to `check_text`.
template <class CheckText>
void connect_with(int faulty, NcclFaults faults, CheckText check_text) {
  const testing::NcclCounts before = testing::nccl_counts();
  run_as_threads(3, [&](Communicator& ranks) {
    const auto copy = ranks.duplicate();
    copy->set_timeout(kTimeout);
    const NcclFaults mine = ranks.rank() == faulty ? faults : NcclFaults{};
    check_text(error_text(ExitCode::preflight, [&] { testing::make_nccl_device(*copy, mine); }));
  });
  const testing::NcclCounts after = testing::nccl_counts();
  EXPECT_EQ(after.made - before.made, after.aborted - before.aborted) << "what was begun has to be aborted";
}

TEST(NcclFaults, WithoutAnIdNoRankConnects) {
  connect_with(0, {.id = ncclSystemError}, [](const std::string& text) {
    EXPECT_THAT(text, AllOf(HasSubstr("NCCL cannot start: "), HasSubstr("ncclGetUniqueId(&id) at "),
                            HasSubstr("an error on purpose (in the stand-in)"), HasSubstr("NCCL_DEBUG=INFO")));
  });
}

TEST(NcclFaults, ARankThatCannotBeginIsNamedOnAll) {
  connect_with(1, {.begin = ncclUnhandledCudaError}, [](const std::string& text) {
    EXPECT_THAT(text, AllOf(HasSubstr("NCCL cannot connect the ranks: rank 1: "), HasSubstr("ncclCommInitRankConfig("),
                            HasSubstr("an error on purpose")));
  });
}

TEST(NcclFaults, ARankThatCannotConnectIsNamedOnAll) {
  connect_with(2, {.connect = ncclInvalidUsage}, [](const std::string& text) {
    EXPECT_THAT(text, HasSubstr("NCCL cannot connect the ranks: rank 2: "));
  });
}

TEST(NcclFaults, ARankThatNeverConnectsEndsTheWait) {
  connect_with(1, {.connects_never = true}, [](const std::string& text) {
    EXPECT_THAT(text, AllOf(HasSubstr("NCCL cannot connect the ranks: rank "), HasSubstr("not connected after 0.5 s")));
  });
}

// Creates a reducer on each rank, with `faults` on rank 1 during training, and calls `body` on all ranks.
template <class Body>
void reduce_with(int ranks, NcclFaults faults, Body body) {
  const testing::NcclCounts before = testing::nccl_counts();
  run_as_threads(ranks, [&](Communicator& communicator) {
    const auto copy = communicator.duplicate();
    copy->set_timeout(kTimeout);
    const ReducerConfig config = testing::model_config(Reduction::ring, true, ranks);
    {
      const ReducerRig rig =
          testing::make_nccl_reducer(*copy, config, communicator.rank() == 1 ? faults : NcclFaults{});
      body(communicator, config, rig);
    }
    communicator.barrier();
  });
  const testing::NcclCounts after = testing::nccl_counts();
  EXPECT_EQ(after.aborted - before.aborted, ranks);
}

TEST(NcclFaults, ASumThatNeverEndsIsNamedOnAllRanks) {
  for (const std::size_t silent : {std::size_t{0}, std::size_t{2}}) {
    reduce_with(
        3, {.silent_sum = silent}, [&](Communicator& ranks, const ReducerConfig& config, const ReducerRig& rig) {
          const double begin = now();
          const std::string text =
              error_text(ExitCode::rank_lost, [&] { testing::run_step(rig, ranks, config, 3, kStep); });
          EXPECT_GE(now() - begin, kTimeout);
          EXPECT_THAT(text, HasSubstr(fmt::format("step 7, gradient bucket {} of {}: waited 0.5 s for NCCL's sum over "
                                                  "3 ranks: a rank hung or died",
                                                  silent + 1, config.buckets.size())));
        });
  }
}

TEST(NcclFaults, AMessageThatNeverEndsIsNamed) {
  const std::size_t buckets = testing::model_config(Reduction::ring, true, 2).buckets.size();
  reduce_with(2, {.silent_sum = buckets}, [](Communicator&, const ReducerConfig& config, const ReducerRig& rig) {
    const Memory message = rig.backend->memory().allocate(sizeof(double), "a message");
    rig.reducer->begin_step(kStep);
    rig.backend->math().fill_zero(rig.reducer->shard_gradient(), config.elements * sizeof(float));
    rig.reducer->shard_done();
    rig.reducer->finish();
    rig.reducer->sum(message.at<double>(0), 1);
    EXPECT_THAT(error_text(ExitCode::rank_lost, [&] { rig.reducer->wait(); }),
                HasSubstr("step 7, the ranks' message: waited 0.5 s"));
  });
}

TEST(NcclFaults, AnErrorWhileASumRunsIsSeenAtOnce) {
  reduce_with(2, {.broken_sum = 1}, [](Communicator& ranks, const ReducerConfig& config, const ReducerRig& rig) {
    const std::string text = error_text(ExitCode::rank_lost, [&] { testing::run_step(rig, ranks, config, 3, kStep); });
    EXPECT_THAT(text, HasSubstr("step 7, gradient bucket "));
    // NCCL reports the error to this rank when it waits or enqueues a later sum; the other rank times out.
    if (ranks.rank() == 1) {
      EXPECT_THAT(text, AllOf(HasSubstr("gradient bucket 2"), HasSubstr("remote error (in the stand-in)")));
    }
  });
}

TEST(NcclFaults, ARefusedSumNamesStepAndBucket) {
  reduce_with(2, {.refused_sum = 2}, [](Communicator& ranks, const ReducerConfig& config, const ReducerRig& rig) {
    const ExitCode code = ranks.rank() == 1 ? ExitCode::internal : ExitCode::rank_lost;
    const std::string text = error_text(code, [&] { testing::run_step(rig, ranks, config, 3, kStep); });
    // The other rank times out in the first sum that this rank did not reach.
    EXPECT_THAT(text, HasSubstr("step 7, gradient bucket "));
    if (ranks.rank() == 1) {
      EXPECT_THAT(text, AllOf(HasSubstr("step 7, gradient bucket 3 of "), HasSubstr("ncclAllReduce(")));
    }
  });
}

// As in NCCL, a communicator cannot be destroyed while a graph contains its sums: the error must be reported
// nevertheless, and the communicator is destroyed with the recording.
TEST(NcclFaults, AReplayedSumThatNeverEndsIsNamed) {
  const std::size_t buckets = testing::model_config(Reduction::ring, true, 2).buckets.size();
  // An ordinary step, then a recorded one whose second sum hangs.
  reduce_with(
      2, {.silent_sum = buckets + 1}, [&](Communicator& ranks, const ReducerConfig& config, const ReducerRig& rig) {
        testing::run_step(rig, ranks, config, 3, 0);
        const testing::NcclCounts before = testing::nccl_counts();
        const auto recording = rig.backend->queue().record([&] {
          rig.backend->math().fill_zero(rig.reducer->shard_gradient(), config.elements * sizeof(float));
          rig.reducer->shard_done();
          rig.reducer->finish();
        });
        rig.reducer->begin_step(kStep);
        recording->replay();
        EXPECT_THAT(error_text(ExitCode::rank_lost, [&] { rig.reducer->wait(); }),
                    HasSubstr(fmt::format("step 7, gradient bucket 2 of {}: waited 0.5 s", buckets)));
        EXPECT_EQ(testing::nccl_counts().aborted, before.aborted) << "no communicator ends before its recordings";
        ranks.barrier();
      });
}

// With several steps in flight it is the first that has not ended.
TEST(NcclFaults, AStepInFlightThatNeverEndsIsNamed) {
  const std::size_t buckets = testing::model_config(Reduction::ring, true, 2).buckets.size();
  // The second sum of the third of four steps.
  reduce_with(2, {.silent_sum = 2 * (buckets + 1) + 1},
              [&](Communicator& ranks, const ReducerConfig& config, const ReducerRig& rig) {
                DeviceQueue& queue = rig.backend->queue();
                const Memory message = rig.backend->memory().allocate(sizeof(double), "a message");
                const auto step = [&] {
                  rig.backend->math().fill_zero(rig.reducer->shard_gradient(), config.elements * sizeof(float));
                  rig.reducer->shard_done();
                  rig.reducer->finish();
                  rig.reducer->sum(message.at<double>(0), 1);
                };
                std::array<std::unique_ptr<DeviceEvent>, 4> ends;
                for (std::size_t i = 0; i < ends.size(); ++i) {
                  ends[i] = queue.make_event();
                  rig.reducer->begin_step(kStep - 2 + static_cast<std::int64_t>(i));
                  step();
                  queue.mark(*ends[i]);
                }
                rig.reducer->wait_for(*ends[0], kStep - 2);
                rig.reducer->wait_for(*ends[1], kStep - 1);
                EXPECT_THAT(error_text(ExitCode::rank_lost, [&] { rig.reducer->wait_for(*ends[2], kStep); }),
                            HasSubstr(fmt::format("step 7, gradient bucket 2 of {}: waited 0.5 s", buckets)));
                ranks.barrier();
              });
}

TEST(NcclFaults, AnErrorOfTheDeviceNamesTheStep) {
  run_as_threads(1, [](Communicator& ranks) {
    const ReducerConfig config = testing::model_config(Reduction::ring, true, 1);
    const ReducerRig rig = testing::make_nccl_reducer(ranks, config);
    const Memory values = rig.backend->memory().allocate(sizeof(float), "a test");
    testing::break_streams(cudaErrorIllegalAddress);
    EXPECT_THAT(error_text(ExitCode::internal, [&] { rig.sums->wait("step 7"); }),
                AllOf(HasSubstr("step 7: "), HasSubstr("CUDA: "), HasSubstr("an error on purpose")));
    testing::break_streams(cudaSuccess);
    EXPECT_THAT(error_text(ExitCode::rank_lost, [&] { rig.sums->wait("step 8"); }),
                HasSubstr("after an earlier error"));
    EXPECT_THAT(error_text(ExitCode::rank_lost, [&] { rig.sums->all_reduce(values.at<float>(0), 1); }),
                HasSubstr("after an earlier error"));
  });
}

// A rank that throws does not wait for the others, nor they for it.
TEST(NcclFaults, ARankThatLeavesByAnExceptionAborts) {
  const testing::NcclCounts before = testing::nccl_counts();
  // Rank 1 must have its communicator before rank 0 fails; otherwise it fails as well.
  std::atomic<bool> made{false};
  EXPECT_THROW(run_as_threads(2,
                              [&made](Communicator& ranks) {
                                const testing::Device device = testing::make_nccl_device(ranks);
                                if (ranks.rank() == 1) {
                                  made = true;
                                  made.notify_all();
                                  return;
                                }
                                made.wait(false);
                                throw Error(ExitCode::data, "not NCCL's fault");
                              }),
               Error);
  const testing::NcclCounts after = testing::nccl_counts();
  EXPECT_EQ(after.aborted - before.aborted, 1);
  EXPECT_EQ(after.destroyed - before.destroyed, 1);
}

}  // namespace
}  // namespace ddp
