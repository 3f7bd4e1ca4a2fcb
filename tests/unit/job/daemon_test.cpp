#include "job/launch/daemon.h"

#include <gtest/gtest.h>

namespace ddp {
namespace {

// As the kernel writes it: a listening socket, one that has sent the same bytes seven times, and one that has sent twice.
constexpr std::string_view kTable =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:E1B5 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 0000 100 0 0 10 "
    "0\n"
    "   1: 0B014D0A:A2C4 0A014D0A:9C41 01 00000121:00000000 01:000009F2 00000007     0        0 102 2 0000 1 4 0 2 7\n"
    "   2: 0B014D0A:A2C6 0A014D0A:9C42 01 00000021:00000000 01:000000F2 00000002     0        0 103 2 0000 1 4 0 2 7\n"
    "   3: 0B014D0A:A2C8 0A014D0A:9C43 01 00000021:00000000 01:000000F2 00000010     0        0 104 2 0000 1 4 0 2 7\n";

TEST(Daemon, RetransmissionsAreThoseOfItsOwnSockets) {
  EXPECT_EQ(most_retransmissions(kTable, {}), 0);
  EXPECT_EQ(most_retransmissions(kTable, {101}), 0);
  EXPECT_EQ(most_retransmissions(kTable, {103, 105}), 2);
  EXPECT_EQ(most_retransmissions(kTable, {101, 102, 103}), 7);
  EXPECT_EQ(most_retransmissions(kTable, {104}), 16);
}

TEST(Daemon, OtherTablesHaveNone) {
  EXPECT_EQ(most_retransmissions("", {102}), 0);
  EXPECT_EQ(most_retransmissions("1 2 3\n\nno table at all 7 8 9 x 102\n", {102}), 0);
}

TEST(Daemon, AnotherParentIsNotCutOff) { EXPECT_FALSE(daemon_is_cut_off()); }

}  // namespace
}  // namespace ddp
