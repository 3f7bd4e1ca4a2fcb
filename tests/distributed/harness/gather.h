// Joins the ranks of a test program: which tests failed where, gathered on rank 0.
//
//   ::testing::UnitTest::GetInstance()->listeners().Append(new RankListener(rank, size));   // GoogleTest owns it
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp::testing {

// What one expectation of one rank has to say.
struct RankFailure {
  std::string place;  // "file.cpp:12"
  std::string message;
};

std::string pack(const std::vector<RankFailure>& failures);
std::vector<RankFailure> unpack(const std::string& bytes);

// At the end of each test, waits for all ranks and reports the other ranks' failures as failures of rank 0, with the
// rank in front. A rank that does not come within a minute ends the job: each rank then prints its own failures.
class RankListener : public ::testing::EmptyTestEventListener {
 public:
  RankListener(int rank, int size) : rank_(rank), size_(size) {}

  void OnTestStart(const ::testing::TestInfo& test) override;
  void OnTestPartResult(const ::testing::TestPartResult& result) override;
  void OnTestEnd(const ::testing::TestInfo& test) override;

 private:
  void wait_for_all(const ::testing::TestInfo& test) const;
  std::vector<std::string> gather(const std::string& mine) const;

  int rank_;
  int size_;
  std::vector<RankFailure> failures_;
};

}  // namespace ddp::testing
