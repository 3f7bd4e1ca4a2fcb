// The one table of all options: topic, key, default, range and help line of each, and how its value is read into and
// out of the structs of options.h. Parsing, --help, --dump-config and the suggestions for mistyped keys all derive from
// it.
//
//   for (const OptionSpec& spec : option_table()) std::cout << "--" << spec.key << ": " << spec.help << '\n';
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "options/options.h"

namespace ddp {

// Why a value cannot be taken: "not a number". Whoever parses adds the key, the place and the allowed range.
class BadValue : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct OptionSpec {
  std::string_view topic;  // "optimizer"
  std::string_view key;    // "weight-decay"
  char letter = '\0';      // 'b' for -b
  std::string value_name;  // "NUMBER", "ring|tree|root"; empty for what needs no value
  std::string allowed;     // what it takes, for errors: "a number from 0 to 1"
  std::string range;       // the same in brief, for help: "0 to 1"; empty where value_name says all
  std::string_view help;   // one line
  std::string unset;       // what holds where get() has nothing: "runs/MODEL-DATASET"
  std::string bare;        // the value where it stands on the command line without one; empty: it needs a value
  bool command_line_only = false;
  bool common = false;  // listed by --help without a topic

  // Reads `value` into `options`; throws BadValue.
  std::function<void(Options& options, std::string_view value)> set;
  // The value as set() reads it, or nothing where the option is not set.
  std::function<std::optional<std::string>(const Options& options)> get;
};

std::vector<OptionSpec> option_table();

struct OptionTopic {
  std::string_view name;
  std::string_view title;
};
std::span<const OptionTopic> option_topics();

struct CommandSpec {
  std::string_view name;
  std::string_view help;
};
std::span<const CommandSpec> command_table();

// The spec of `key` (without dashes), or nullptr.
const OptionSpec* find_option(std::span<const OptionSpec> table, std::string_view key);

// The key that the user may have meant by `word` (dashes in front are ignored), or "".
std::string suggest_key(std::span<const OptionSpec> table, std::string_view word);

}  // namespace ddp
