#include "options/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace ddp {
namespace {

TEST(Version, NamesTheProgramAndEachLibrary) {
  const std::array libraries = {boost_version(), LibraryVersion{"oneDNN", "2.6.3"}};
  const std::string text = version_text(libraries);
  EXPECT_THAT(text, ::testing::StartsWith("ddp_train " + program_version()));
  EXPECT_THAT(text, ::testing::HasSubstr("\n  oneDNN  2.6.3\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\n  Boost   [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

}  // namespace
}  // namespace ddp
