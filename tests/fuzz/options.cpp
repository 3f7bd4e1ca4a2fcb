// Configuration files, and command lines with one argument per line.
#include <sstream>

#include "commands/commands.h"
#include "fuzz.h"
#include "options/parse.h"

namespace {

// Options that are dumped to a file parse back to the same options.
void check_round_trip(const ddp::Options& options) {
  static ddp::fuzz::MemoryFile file;
  file.assign(ddp::dump_config(options));
  const std::string path = file.path().string();
  const std::vector<const char*> args = {options.command.c_str(), "--config", path.c_str()};
  ddp::Options again = ddp::parse_options(args, ddp::command_table());
  again.run.config = options.run.config;
  ddp::fuzz::require(again == options, "options come back from --dump-config as others:\n" + ddp::dump_config(options));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ddp::fuzz::MemoryFile file;
  const std::string text(reinterpret_cast<const char*>(data), size);
  file.assign(text);
  const std::string path = file.path().string();
  const std::vector<const char*> args = {"--config", path.c_str()};
  ddp::fuzz::parses([&] { check_round_trip(ddp::parse_options(args, ddp::command_table())); });

  std::vector<std::string> words;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  std::vector<const char*> pointers;
  for (const std::string& word : words) {
    // Mutations must not name other files.
    if (word.find("config") != std::string::npos) return 0;
    pointers.push_back(word.c_str());
  }
  ddp::fuzz::parses([&] { (void)ddp::dump_config(ddp::parse_options(pointers, ddp::command_table())); });
  return 0;
}
