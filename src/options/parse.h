// Parses the command line and a configuration file into Options, and writes Options as such a file.
//
//   const Options options = parse_options({argv + 1, argv + argc}, command_table());
//   std::ofstream("run.cfg") << dump_config(options);   // parses back to the same options
//
// A configuration file holds lines `key = value` and comments from # to the end of a line. The command line is
// `[COMMAND] --key value --key=value --flag`; it takes precedence over the file.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "options/command.h"
#include "options/options.h"

namespace ddp {

// `args` are the arguments after the program name; without `commands` these are options only, for train. Sets the default
// global batch if no batch size is given. With --help or --version the configuration file is not read.
// Throws Error(usage) for an unknown key or command (suggesting the nearest known one), an empty, malformed or
// out-of-range value, a key set twice in the file, a file that is unreadable, truncated or without options, and
// contradictory options.
Options parse_options(std::span<const char* const> args, std::span<const CommandSpec> commands = {});

// For a command on a checkpoint: `given` with what the run's configuration says about model, data, batch and optimizer where
// the user has given nothing else. `config` is TrainingState::config; keys that this version does not know are ignored.
// Throws Error(checkpoint) if a value is not valid, and Error(usage) for contradictory options.
Options with_stored_run(const Options& given, const std::string& config);

struct OptionSetting {
  std::string key;
  std::string value;
};

// `base` with some options changed. Throws Error(usage) for an unknown key, one that does not apply to training alone, an
// invalid value, and contradictory options.
Options with_settings(const Options& base, std::span<const OptionSetting> settings);

// The first and last line of dump_config(); a file with the first but without the last is rejected as truncated.
inline constexpr std::string_view kConfigBegin = "# All options of ddp_train";
inline constexpr std::string_view kConfigEnd = "# End of the options of ddp_train.";

// A configuration file with every option, grouped by topic and commented, except the command and the options that are
// allowed on the command line only (--config, --dump-config, --help, --version).
std::string dump_config(const Options& options);

// A page of --help: of a topic or a command. "" selects the overview, "all" all topics, and "markdown" the contents of
// docs/options.md. Throws Error(usage) for an unknown page.
std::string help_text(std::string_view page, std::span<const CommandSpec> commands);

// All commands and options as a page of Markdown.
std::string options_markdown(std::span<const CommandSpec> commands);

}  // namespace ddp
