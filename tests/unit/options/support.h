// Shared by the tests of options: parsing of word lists, and temporary configuration files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "commands/commands.h"
#include "options/parse.h"

namespace ddp {

inline std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return {std::istream_iterator<std::string>(stream), {}};
}

inline Options parse(const std::vector<std::string>& words) {
  std::vector<const char*> args;
  args.reserve(words.size());
  for (const std::string& word : words) args.push_back(word.c_str());
  return parse_options(args, command_table());
}

// Returns the message of the usage error of parsing `words`; if there is none, the test fails and the result is "".
inline std::string usage_message(const std::vector<std::string>& words) {
  try {
    parse(words);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error from: " << ::testing::PrintToString(words);
  return "";
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) {
    std::string pattern = (std::filesystem::temp_directory_path() / "options_test_XXXXXX").string();
    const int file = mkstemp(pattern.data());
    if (file < 0) throw std::runtime_error("mkstemp failed");
    close(file);
    path_ = pattern;
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace ddp
