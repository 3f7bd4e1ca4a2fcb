// Gathers the test failures of all ranks on rank 0.
//
//   ::testing::UnitTest::GetInstance()->listeners().Append(new RankListener(rank, size));   // GoogleTest owns it
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp::testing {

// One failed expectation on one rank.
struct RankFailure {
  std::string place;  // "file.cpp:12"
  std::string message;
};

std::string pack(const std::vector<RankFailure>& failures);
std::vector<RankFailure> unpack(const std::string& bytes);

// At the end of each test, waits for all ranks and reports the other ranks' failures on rank 0, prefixed with the rank.
// If a rank does not arrive within a minute, the job is aborted, and each rank prints its own failures.
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
