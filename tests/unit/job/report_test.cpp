#include "job/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Failure, KeepsTheCodeAndLineOfAnError) {
  const Failure failure = describe_failure(std::make_exception_ptr(Error(ExitCode::data, "first\nsecond")));
  EXPECT_EQ(failure.code, ExitCode::data);
  EXPECT_EQ(failure.message, "first second");
}

TEST(Failure, OfAJointErrorIsThatOfItsError) {
  const auto error = std::make_exception_ptr(JointError(ExitCode::checkpoint, "text", /*reporter=*/false));
  EXPECT_EQ(describe_failure(error).code, ExitCode::checkpoint);
}

TEST(Failure, LackOfMemoryHasItsOwnCode) {
  EXPECT_EQ(describe_failure(std::make_exception_ptr(std::bad_alloc())).code, ExitCode::out_of_memory);
  EXPECT_EQ(describe_failure(std::make_exception_ptr(std::bad_array_new_length())).code, ExitCode::out_of_memory);
}

TEST(Failure, EverythingElseIsADefectOfTheProgram) {
  const Failure failure = describe_failure(std::make_exception_ptr(std::out_of_range("index 7")));
  EXPECT_EQ(failure.code, ExitCode::internal);
  EXPECT_THAT(failure.message, AllOf(HasSubstr("internal error"), HasSubstr("index 7"), Not(HasSubstr("\n"))));
  EXPECT_EQ(describe_failure(std::make_exception_ptr(42)).code, ExitCode::internal);
}

}  // namespace
}  // namespace ddp
