#include "comm/transport/doorbells.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "base/clock.h"
#include "comm/transport/threads.h"

namespace ddp {
namespace {

using namespace std::chrono_literals;

TEST(Doorbells, ARingEndsTheSleepOfThatRank) {
  run_as_threads(3, [](Communicator& ranks) {
    Doorbells bells(ranks);
    const std::uint32_t heard = bells.heard();
    ranks.barrier();
    if (ranks.rank() == 0) bells.ring(2);
    if (ranks.rank() == 2) {
      const double begin = now();
      EXPECT_TRUE(bells.sleep(heard, 60s));
      EXPECT_LT(now() - begin, 30);
    } else {
      EXPECT_FALSE(bells.sleep(heard, 1ms));
    }
    ranks.barrier();
  });
}

TEST(Doorbells, ARingBetweenLookingAndSleepingIsNotLost) {
  run_as_threads(2, [](Communicator& ranks) {
    Doorbells bells(ranks);
    const std::uint32_t heard = bells.heard();
    ranks.barrier();
    bells.ring(1 - ranks.rank());
    ranks.barrier();
    const double begin = now();
    EXPECT_TRUE(bells.sleep(heard, 60s));
    EXPECT_LT(now() - begin, 30);
    EXPECT_EQ(bells.heard(), heard + 1);
    ranks.barrier();
  });
}

// Two ranks that take turns would end after hours if each ring were only found at the end of a sleep.
TEST(Doorbells, NoneOfManyRingsIsLost) {
  run_as_threads(2, [](Communicator& ranks) {
    Doorbells bells(ranks);
    constexpr std::uint32_t kTurns = 20000;
    const double begin = now();
    for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
      if (ranks.rank() == 0) bells.ring(1);
      while (bells.heard() == turn) bells.sleep(turn, 10s);
      if (ranks.rank() == 1) bells.ring(0);
    }
    EXPECT_LT(now() - begin, 60);
    ranks.barrier();
  });
}

TEST(Doorbells, WithoutABellASleepTakesItsTime) {
  run_as_threads(1, [](Communicator& ranks) {
    Doorbells bells(ranks);
    bells.ring(0);
    const double begin = now();
    EXPECT_FALSE(bells.sleep(bells.heard(), 2ms));
    EXPECT_GE(now() - begin, 2e-3);
  });
}

}  // namespace
}  // namespace ddp
