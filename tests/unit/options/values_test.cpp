#include "options/table/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "options/table/table.h"

namespace ddp {
namespace {

TEST(Values, IntegersReachBothEndsOfTheirRange) {
  EXPECT_EQ(read_integer("-5", -5, 7), -5);
  EXPECT_EQ(read_integer("7", -5, 7), 7);
  EXPECT_THROW(read_integer("8", -5, 7), BadValue);
  EXPECT_THROW(read_integer("-6", -5, 7), BadValue);
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(read_integer("9223372036854775807", 0, kMax), kMax);
  EXPECT_THROW(read_integer("9223372036854775808", 0, kMax), BadValue);
  for (const char* bad : {"", " 1", "1 ", "1.0", "0x10", "one", "+1", "1,000"}) {
    EXPECT_THROW(read_integer(bad, 0, 1000), BadValue) << bad;
  }
}

TEST(Values, RealsReachBothEndsOfTheirRange) {
  EXPECT_EQ(read_real("0", {0, 1}), 0);
  EXPECT_EQ(read_real("1", {0, 1}), 1);
  EXPECT_EQ(read_real("1e-3", {0, 1}), 1e-3);
  EXPECT_THROW(read_real("1", {0, 1, /*high_open=*/true}), BadValue);
  EXPECT_THROW(read_real("1.0000000000000002", {0, 1}), BadValue);
  EXPECT_THROW(read_real("0", {0, 1, false, /*low_open=*/true}), BadValue);
  EXPECT_THROW(read_real("-0.0", {0, 1, false, /*low_open=*/true}), BadValue);
  EXPECT_EQ(read_real("5e-324", {0, 1, false, /*low_open=*/true}), 5e-324);
  EXPECT_FALSE(std::signbit(read_real("-0.0", {0, 1})));
  for (const char* bad : {"", "nan", "-nan", "inf", "infinity", "1e400", "0.5f", " 0.5", "0.5 ", ".", "e5"}) {
    EXPECT_THROW(read_real(bad, {}), BadValue) << bad;
  }
}

TEST(Values, RangesReadAsAPersonWouldSayThem) {
  EXPECT_EQ(describe_range(1, 64), "from 1 to 64");
  EXPECT_EQ(describe_range(1, std::numeric_limits<std::int64_t>::max()), ">= 1");
  EXPECT_EQ(describe_range({0, 1, true}), "in [0, 1)");
  EXPECT_EQ(describe_range(RealRange{}), ">= 0");
  EXPECT_EQ(describe_range({0, 1, false, true}), "in (0, 1]");
  EXPECT_EQ(brief_range({0, 1, false, true}), "(0, 1]");
  EXPECT_EQ(brief_range(1, 64), "1 to 64");
  EXPECT_EQ(brief_range(1, 2147483647), ">= 1");
}

TEST(Values, SizesTakeUnitsAndReadBack) {
  EXPECT_EQ(read_bytes("0"), 0U);
  EXPECT_EQ(read_bytes("1000"), 1000U);
  EXPECT_EQ(read_bytes("64KiB"), 65536U);
  EXPECT_EQ(read_bytes("512MiB"), 512U << 20U);
  EXPECT_EQ(read_bytes("4GiB"), std::uint64_t{4} << 30U);
  for (const char* text : {"0", "1", "1000", "1KiB", "1536MiB", "7GiB", "8589934591GiB"}) {
    EXPECT_EQ(bytes_text(read_bytes(text)), text);
  }
  EXPECT_EQ(bytes_text(2048), "2KiB");
  for (const char* bad : {"", "GiB", "4GB", "4 GiB", "-1", "+1", "1.5GiB", "4gib", "4GiBs", "4GiB ", "8589934592GiB",
                          "18446744073709551616"}) {
    EXPECT_THROW(read_bytes(bad), BadValue) << bad;
  }
}

TEST(Values, OrdinalsKeepTheirOrder) {
  EXPECT_EQ(read_ordinals("0"), std::vector<int>{0});
  EXPECT_EQ(read_ordinals("3,2,10"), (std::vector<int>{3, 2, 10}));
  for (const char* bad : {"", ",", "1,", ",1", "1,,2", "1;2", "1, 2", "-1", "a", "1024", "99999999999999999999"}) {
    EXPECT_THROW(read_ordinals(bad), BadValue) << bad;
  }
}

TEST(Values, ThreeNumbersKeepTheirOrder) {
  EXPECT_EQ(read_three_reals("0.4,2,0", {0, 10}), (std::array<double, 3>{0.4, 2, 0}));
  for (const char* bad : {"", "1", "1,2", "1,2,3,4", "1,2,", ",1,2", "1,,2", "1,2,11", "1,2,-1", "1,2,x", "1;2;3"}) {
    EXPECT_THROW(read_three_reals(bad, {0, 10}), BadValue) << bad;
  }
}

TEST(Values, SidesAreOneNumberOrTwo) {
  EXPECT_EQ(read_sides("32", 8, 64), (ImageSides{32, 32}));
  EXPECT_EQ(read_sides("32x48", 8, 64), (ImageSides{32, 48}));
  for (const char* bad : {"", "x", "32x", "x32", "32x48x3", "32X48", "7x32", "32x65", "32 x48", "-32"}) {
    EXPECT_THROW(read_sides(bad, 8, 64), BadValue) << bad;
  }
}

TEST(Values, EnumsReadAsTheirWords) {
  EXPECT_EQ(to_string(Reduction::tree), "tree");
  EXPECT_EQ(to_string(InitKind::model), "default");
  EXPECT_EQ(to_string(ProgressStyle::none), "none");
  EXPECT_EQ(to_string(LogLevel::warning), "warning");
  EXPECT_EQ(to_string(EvalOn::all), "all");
}

}  // namespace
}  // namespace ddp
