// Catches the exception that an action throws, for tests of invalid input.
//
//   EXPECT_THAT(error_text(ExitCode::data, [&] { open("no-such-file"); }), HasSubstr("no-such-file"));
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace ddp {

// Returns the message of the Error that `action` throws; the test fails if nothing is thrown, the exit code differs, or
// the message has more than one line.
template <class Action>
std::string error_text(ExitCode code, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    std::string text = error.what();
    EXPECT_EQ(error.code(), code) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "an exception other than Error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace ddp
