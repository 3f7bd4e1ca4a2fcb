#include "base/text/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace ddp {
namespace {

TEST(Text, FormatsSizesCountsAndDurations) {
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{3} << 30U), "3.0 GiB");
  EXPECT_EQ(format_count(7), "7");
  EXPECT_EQ(format_count(129030), "129,030");
  EXPECT_EQ(format_duration(0.0123), "12.3 ms");
  EXPECT_EQ(format_duration(75), "1:15");
  EXPECT_EQ(format_duration(3675), "1:01:15");
}

TEST(Text, SuggestsTheNearestNameOrNone) {
  const std::vector<std::string> names = {"lenet", "resnet18", "mobilenet-v2"};
  EXPECT_EQ(nearest("lenett", names), "lenet");
  EXPECT_EQ(nearest("resnet19", names), "resnet18");
  EXPECT_EQ(nearest("transformer", names), "");
}

TEST(Text, EditDistanceCountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", "abc"), 0U);
}

}  // namespace
}  // namespace ddp
