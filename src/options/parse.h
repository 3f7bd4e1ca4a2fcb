// From the command line and a configuration file to Options, and back.
//
//   const Options options = parse_options({argv + 1, argv + argc});
//   std::ofstream("run.cfg") << dump_config(options);   // parses back to the same options
//
// A configuration file holds lines `key = value` and comments from # to the end of a line. The command line is
// `[COMMAND] --key value --key=value --flag`, and beats the file.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "options/options.h"

namespace ddp {

// `args` are the arguments after the program's name. The global batch is filled in where none of the batch sizes is
// given. With --help or --version the configuration file is not read.
// Throws Error(usage) for an unknown key or command (with the nearest known one), for a value that is empty, malformed
// or out of range, for a key given twice in the file, a file that cannot be read, is incomplete or holds no option, and
// options that contradict each other.
Options parse_options(std::span<const char* const> args);

// How dump_config() begins and ends a file; one that begins so and does not end so is refused as incomplete.
inline constexpr std::string_view kConfigBegin = "# All options of ddp_train";
inline constexpr std::string_view kConfigEnd = "# End of the options of ddp_train.";

// A configuration file that holds every option, by topic, with comments. Left out are the command and what belongs to
// the command line alone (--config, --dump-config, --help, --version).
std::string dump_config(const Options& options);

// The help page of a topic; of the most used options for "", of all for "all". Throws Error(usage) for others.
std::string help_text(std::string_view topic);

}  // namespace ddp
