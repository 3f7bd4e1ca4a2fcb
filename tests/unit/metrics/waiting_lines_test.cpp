#include "metrics/display/waiting_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/status/set_up_progress.h"

namespace ddp {
namespace {

std::string text_of(std::FILE* file) {
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  return text;
}

TEST(WaitingLinesTest, ShowATitleAndThenTheProgress) {
  std::FILE* file = std::tmpfile();
  Console console(ProgressStyle::lines, file);
  WaitingLines waiting(console, "lenet on glyphs", set_up_progress, {0.01, 0.02, 0.01});
  {
    const SetUpProgress progress("timing kernels", 40);
    progress.advance(12);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::fseek(file, 0, SEEK_END) == 0 && std::ftell(file) < 50 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  waiting.stop();
  std::fseek(file, 0, SEEK_END);
  EXPECT_THAT(text_of(file), ::testing::StartsWith("lenet on glyphs\n  timing kernels, 12 of 40\n"));
  std::fclose(file);
}

TEST(WaitingLinesTest, WhatIsSetUpAtOnceShowsNothing) {
  std::FILE* file = std::tmpfile();
  Console console(ProgressStyle::lines, file);
  { const WaitingLines waiting(console, "lenet on glyphs", set_up_progress, {60, 120, 60}); }
  std::fseek(file, 0, SEEK_END);
  EXPECT_EQ(text_of(file), "");
  std::fclose(file);
}

}  // namespace
}  // namespace ddp
