#include "base/text/text_table.h"

#include <gtest/gtest.h>

namespace ddp {
namespace {

using Rows = std::vector<std::vector<std::string>>;

TEST(TextTable, ColumnsAreAsWideAsTheirWidestCell) {
  const Rows rows = {{"a", "long", "x"}, {"wider", "b"}, {}, {"–", "", "–"}};
  EXPECT_EQ(text_table(rows, std::vector{Align::right, Align::left}),
            "    a  long  x\n"
            "wider  b\n"
            "\n"
            "    –        –\n");
}

TEST(TextTable, NothingIsNothing) { EXPECT_EQ(text_table(Rows{}, std::vector<Align>{}), ""); }

}  // namespace
}  // namespace ddp
