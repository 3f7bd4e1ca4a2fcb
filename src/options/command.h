// A command of the program: a row of the table in commands/command_table.cpp, from which the parser, --help, docs/options.md and
// the dispatch in main.cpp derive.
//
//   const CommandSpec* eval = find_command(command_table(), "eval");
//   const int code = eval->run(session, options);
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

class MpiSession;
struct Options;

// In CommandSpec::topics: all topics but that of the options of single commands.
inline constexpr std::string_view kTrainingTopics = "*";

// The folders that a command takes beside its options.
struct FolderArguments {
  std::size_t least = 0;
  std::size_t most = 0;
  std::string_view what = {};  // "the folders of two runs"
};

struct CommandSpec {
  std::string_view name;
  std::string_view purpose;  // one line
  std::string_view usage;    // behind the name of the program
  std::string_view example;  // a whole command line
  // The options on its page of --help, by their keys. Those of the topic "commands" are accepted by the commands that list them;
  // all others by every command, as configuration files contain them.
  std::string_view options = {};
  std::string_view topics = {};  // whose options it takes as well; or kTrainingTopics
  FolderArguments folders = {};
  // Collective over the session's ranks; returns the exit code of the job.
  int (*run)(const MpiSession& session, const Options& options) = nullptr;
};

// nullptr if there is none of this name.
const CommandSpec* find_command(std::span<const CommandSpec> commands, std::string_view name);

// The names of the commands whose page lists the option `key`, in the order of the table.
std::vector<std::string> names_with(std::span<const CommandSpec> commands, std::string_view key);

}  // namespace ddp
