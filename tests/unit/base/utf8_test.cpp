#include "base/text/utf8.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <string>

namespace ddp {
namespace {

TEST(Utf8, TellsWhatIsValid) {
  for (const char* good :
       {"", "cat", "\xC3\xA9", "\xE7\x8C\xAB", "\xF0\x9F\x90\xB1", "\xEF\xBF\xBD", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  // Latin-1, GBK, Shift-JIS, CP437, surrogates, overlong forms, beyond U+10FFFF, cut off, an end without a beginning.
  for (const char* bad :
       {"caf\xE9", "\xC3\xA8\xB9\xB7", "\x94\x4C", "\x82t\x82", "\xED\xA0\x80", "\xED\xBF\xBF", "\xC0\x80",
        "\xE0\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3", "\xE7\x8C", "\x80"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

TEST(Utf8, EscapedNamesAreReadableAndComeBack) {
  EXPECT_EQ(escape_name("\xC3\xA9t\xC3\xA9"), "\xC3\xA9t\xC3\xA9");
  EXPECT_EQ(escape_name("caf\xE9"), R"(caf\xE9)");
  EXPECT_EQ(escape_name("\xED\xA0\x80"), R"(\xED\xA0\x80)");
  EXPECT_EQ(escape_name("a\nb\x1B[1m\xC2\x9B"), R"(a\x0Ab\x1B[1m\xC2\x9B)");
  EXPECT_EQ(escape_bytes("a\nb"), "a\nb");
  // What looks like an escape is one too.
  EXPECT_EQ(escape_name(R"(a\xE9)"), R"(a\x5CxE9)");
  EXPECT_EQ(escape_name(R"(C:\new\x)"), R"(C:\new\x)");
}

// All short texts of a few bytes that could be confused, and random ones.
TEST(Utf8, DifferentTextsStayDifferentAndValid) {
  constexpr std::array<char, 8> kBytes = {'\\', 'x', '5', 'C', '\xC3', '\xA9', '\xED', '\n'};
  std::set<std::string> seen;
  for (unsigned code = 0; code < 8U * 8 * 8 * 8 * 8; ++code) {
    std::string text;
    for (unsigned i = 0, rest = code; i < 5; ++i, rest /= 8) text += kBytes[rest % 8];
    ASSERT_TRUE(seen.insert(escape_name(text)).second) << text;
    ASSERT_TRUE(is_utf8(escape_name(text)));
    ASSERT_EQ(unescape_bytes(escape_name(text)), text);
    ASSERT_EQ(unescape_bytes(escape_bytes(text)), text);
  }
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 20, ' ');
    for (char& byte : text) byte = static_cast<char>(random());
    ASSERT_TRUE(is_utf8(escape_bytes(text)));
    ASSERT_EQ(unescape_bytes(escape_bytes(text)), text);
  }
}

TEST(Utf8, UnicodeFormsOfANameAreTheSame) {
  // Composed, decomposed, mixed and in another order of marks: é, ệ, 가 and 각, が, й, ά, Å (three ways).
  EXPECT_EQ(same_form("\u00E9t\u00E9"), same_form("e\u0301te\u0301"));
  EXPECT_EQ(same_form("\u1EC7"), same_form("e\u0323\u0302"));
  EXPECT_EQ(same_form("\u1EC7"), same_form("\u00EA\u0323"));
  EXPECT_EQ(same_form("\u1EC7"), same_form("e\u0302\u0323"));
  EXPECT_EQ(same_form("\uAC00\uAC01"), same_form("\u1100\u1161\u1100\u1161\u11A8"));
  EXPECT_EQ(same_form("\u304C"), same_form("\u304B\u3099"));
  EXPECT_EQ(same_form("\u0439"), same_form("\u0438\u0306"));
  EXPECT_EQ(same_form("\u03AC"), same_form("\u03B1\u0301"));
  EXPECT_EQ(same_form("\u212B"), same_form("A\u030A"));
  EXPECT_EQ(same_form("\u00C5"), same_form("A\u030A"));
  EXPECT_NE(same_form("\u00E9"), same_form("e"));
  EXPECT_NE(same_form("\u00E9"), same_form("\u00E8"));
  EXPECT_NE(same_form("ab"), same_form("ba"));
  EXPECT_NE(same_form("e\u0301a"), same_form("ea\u0301"));
  EXPECT_EQ(same_form("caf\xE9"), "caf\xE9");
}

}  // namespace
}  // namespace ddp
