#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace ddp {
namespace {

TEST(Crc32c, IsCastagnolis) {
  // From RFC 3720, section B.4, and the usual check value.
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(""), 0U);
}

}  // namespace
}  // namespace ddp
