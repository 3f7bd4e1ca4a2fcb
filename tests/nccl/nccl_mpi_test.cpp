#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "comm/transport/mpi.h"
#include "nccl/nccl_rig.h"
#include "nccl/nccl_suite.h"
#include "support/errors.h"

namespace ddp {
namespace {

using testing::DeviceCommunicatorCase;
using ::testing::HasSubstr;
using testing::NcclCase;
using testing::NcclFaults;
using testing::ReducerCase;

class MpiNccl : public ::testing::TestWithParam<DeviceCommunicatorCase> {};
TEST_P(MpiNccl, Sums) {
  const auto ranks = make_mpi_communicator(/*timeout_seconds=*/30);
  GetParam().body(*ranks, [](Communicator& communicator) { return testing::make_nccl_device(communicator); });
}
INSTANTIATE_TEST_SUITE_P(World, MpiNccl, ::testing::ValuesIn(testing::device_communicator_cases()),
                         [](const auto& test) { return test.param.name; });

class MpiNcclReducer : public ::testing::TestWithParam<ReducerCase> {};
TEST_P(MpiNcclReducer, Reduces) {
  const auto ranks = make_mpi_communicator(/*timeout_seconds=*/30);
  GetParam().body(*ranks, [](Communicator& communicator, const ReducerConfig& config) {
    return testing::make_nccl_reducer(communicator, config);
  });
}
INSTANTIATE_TEST_SUITE_P(World, MpiNcclReducer, ::testing::ValuesIn(testing::reducer_cases()),
                         [](const auto& test) { return test.param.name; });

class MpiNcclCases : public ::testing::TestWithParam<NcclCase> {};
TEST_P(MpiNcclCases, Hold) { GetParam().body(*make_mpi_communicator(/*timeout_seconds=*/30)); }
INSTANTIATE_TEST_SUITE_P(World, MpiNcclCases, ::testing::ValuesIn(testing::nccl_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(MpiNcclFaults, ARankThatCannotConnectIsNamedOnAll) {
  const auto ranks = make_mpi_communicator(/*timeout_seconds=*/30);
  const int last = ranks->size() - 1;
  const NcclFaults faults = ranks->rank() == last ? NcclFaults{.connect = ncclSystemError} : NcclFaults{};
  EXPECT_THAT(error_text(ExitCode::preflight, [&] { testing::make_nccl_device(*ranks, faults); }),
              HasSubstr("NCCL cannot connect the ranks: rank " + std::to_string(last)));
}

TEST(MpiNcclFaults, ASumThatNeverEndsIsNamedOnAllRanks) {
  const auto ranks = make_mpi_communicator(/*timeout_seconds=*/30);
  const auto copy = ranks->duplicate();
  copy->set_timeout(0.5);
  const ReducerConfig config = testing::model_config(Reduction::ring, true, ranks->size());
  {
    const auto rig =
        testing::make_nccl_reducer(*copy, config, ranks->rank() == 0 ? NcclFaults{.silent_sum = 1} : NcclFaults{});
    EXPECT_THAT(error_text(ExitCode::rank_lost, [&] { testing::run_step(rig, *ranks, config, 3, 7); }),
                HasSubstr("step 7, gradient bucket 2 of "));
  }
  ranks->barrier();
}

}  // namespace
}  // namespace ddp
