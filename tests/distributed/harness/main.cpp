// The main program of all tests under mpirun: the ranks run the same tests in parallel, rank 0 reports for all of them,
// and every rank exits with the exit code of the whole job.
//
// A job with fewer ranks than the environment variable DDP_EXPECT_RANKS fails before the first test, because it would
// not test what it is meant to.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "distributed/harness/gather.h"

namespace {

// Returns false if MPI's number of ranks differs from the expected one, if that is set.
bool ranks_as_expected(int rank, int size) {
  const char* text = std::getenv("DDP_EXPECT_RANKS");
  if (text == nullptr) return true;
  char* end = nullptr;
  const long expected = std::strtol(text, &end, 10);
  if (end != text && *end == '\0' && expected == size) return true;
  if (rank == 0) std::fprintf(stderr, "DDP_EXPECT_RANKS asks for %s ranks, MPI gives %d\n", text, size);
  return false;
}

// Returns true if all ranks ran the same number of tests, and at least one.
bool ran_the_same_tests(int size) {
  const int mine = ::testing::UnitTest::GetInstance()->test_to_run_count();
  int least = 0;
  int most = 0;
  MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&mine, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (least == most && least > 0) return true;
  std::fprintf(stderr, "the %d ranks ran between %d and %d tests\n", size, least, most);
  return false;
}

int run(int rank, int size) {
  if (!ranks_as_expected(rank, size)) return EXIT_FAILURE;
  ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new ddp::testing::RankListener(rank, size));
  int failed = RUN_ALL_TESTS();
  if (!ran_the_same_tests(size)) failed = 1;
  int any_failed = 0;
  MPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return any_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  ::testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int code = run(rank, size);
  MPI_Finalize();
  return code;
}
