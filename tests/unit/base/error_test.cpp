#include "base/error.h"

#include <gtest/gtest.h>

namespace ddp {
namespace {

TEST(Error, IsOneLineWhateverNamesAreInIt) {
  EXPECT_STREQ(Error(ExitCode::data, "tensor 'x\ny\x1b[2J\x7f' of grün").what(), "tensor 'x y?[2J?' of grün");
}

}  // namespace
}  // namespace ddp
