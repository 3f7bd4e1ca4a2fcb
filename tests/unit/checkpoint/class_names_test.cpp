#include "checkpoint/class_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp {
namespace {

using ::testing::HasSubstr;
using Names = std::vector<std::string>;

TEST(ClassNames, AreTheSameWithTheSameNamesInTheSameOrder) {
  EXPECT_EQ(class_difference(Names{"cat", R"(caf\xE9)"}, Names{"cat", R"(caf\xE9)"}), "");
  EXPECT_THAT(class_difference(Names{"cat", "dog"}, Names{"dog", "cat"}), HasSubstr("another Unicode form or order"));
  EXPECT_THAT(class_difference(Names{"cat", "dog"}, Names{"cat", "cow"}),
              HasSubstr("was trained on the classes cat, cow, but this data set has cat, dog"));
  EXPECT_THAT(class_difference(Names{"cat"}, Names{"cat", "dog"}), HasSubstr("cat, dog"));
}

// GBK 猫 and 狗, as versions before stored them: one U+FFFD for each invalid byte, ASCII as it is.
TEST(ClassNames, OfOlderVersionsMatchWhereTheyCanBeToldApart) {
  const Names names = {"a\\x0Ab", R"(caf\xE9)", R"(na\xEFve)", R"(x\x5CxE9)"};
  EXPECT_EQ(class_difference(names, Names{"a\nb", "caf\uFFFD", "na\uFFFDve", R"(x\xE9)"}), "");
  EXPECT_THAT(class_difference(names, Names{"a\nb", "caf\uFFFD", "na\uFFFDv", R"(x\xE9)"}), HasSubstr("but this data"));
  EXPECT_THAT(class_difference(Names{R"(\xE8)", R"(\xE9)"}, Names{"\uFFFD", "\uFFFD"}),
              HasSubstr(R"(cannot tell its classes apart: an older ddp_train stored \xE9 and other names as)"));
}

TEST(ClassNames, InAnotherUnicodeFormAreTheSameInTheSameOrder) {
  EXPECT_EQ(class_difference(Names{"cat", "e\u0301"}, Names{"cat", "\u00E9"}), "");
  // Decomposed, é lies before z; composed, behind it.
  EXPECT_THAT(class_difference(Names{"e\u0301", "z"}, Names{"z", "\u00E9"}),
              HasSubstr("another Unicode form or order"));
}

}  // namespace
}  // namespace ddp
