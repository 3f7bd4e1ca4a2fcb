// Tests that fail deliberately, on one rank only: expect_failure.cmake checks that the harness reports them.
#include <gtest/gtest.h>
#include <mpi.h>

#include <stdexcept>

namespace {

int my_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

TEST(Probe, PassesEverywhere) { EXPECT_GE(my_rank(), 0); }

TEST(Probe, FailsOnRankOne) { EXPECT_NE(my_rank(), 1) << "as it should"; }

TEST(Probe, ThrowsOnRankOne) {
  if (my_rank() == 1) throw std::runtime_error("thrown on purpose");
}

}  // namespace
