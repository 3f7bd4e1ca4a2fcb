#include <gtest/gtest.h>

#include <memory>

#include "comm/transport/mpi.h"
#include "unit/comm/communicator_suite.h"

namespace ddp {
namespace {

using testing::CommunicatorCase;

class Mpi : public ::testing::TestWithParam<CommunicatorCase> {};

TEST_P(Mpi, Communicates) {
  const std::unique_ptr<Communicator> ranks = make_mpi_communicator(/*timeout_seconds=*/30);
  GetParam().body(*ranks);
}

INSTANTIATE_TEST_SUITE_P(World, Mpi, ::testing::ValuesIn(testing::communicator_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ddp
