#include "base/status/last_acts.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace ddp {
namespace {

TEST(LastActs, AreDoneOnceNewestFirstWhateverOneOfThemThrows) {
  std::string done;
  const LastAct first([&] { done += '1'; });
  const LastAct second([&] {
    done += '2';
    throw std::runtime_error("too late");
  });
  {
    const LastAct gone([&] { done += '3'; });
  }
  perform_last_acts();
  perform_last_acts();
  EXPECT_EQ(done, "21");
}

}  // namespace
}  // namespace ddp
