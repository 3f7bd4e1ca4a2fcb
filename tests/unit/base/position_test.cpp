#include "base/status/position.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace ddp {
namespace {

TEST(PositionTest, IsWhatWasNotedLast) {
  note_step(7);
  note_phase(WorkPhase::reduction);
  note_bucket(2);
  const Position here = position();
  EXPECT_EQ(here.step, 7);
  EXPECT_EQ(here.phase, WorkPhase::reduction);
  EXPECT_EQ(here.bucket, 2);
  EXPECT_STREQ(phase_name(here.phase), "reduction");
  // As another process would read it.
  const std::optional<Position> read = position_in(getpid(), position_address());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->step, 7);
  EXPECT_EQ(read->phase, WorkPhase::reduction);
  EXPECT_EQ(read->bucket, 2);
  EXPECT_FALSE(position_in(getpid(), 1));
}

}  // namespace
}  // namespace ddp
