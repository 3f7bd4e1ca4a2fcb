// The table of all options: topic, key, default, range and help of each, and how its value is transferred to and from
// the structs of options.h. Parsing, --help, docs/options.md, --dump-config and suggestions for misspelled keys derive
// from it.
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

#include "options/command.h"
#include "options/options.h"
#include "options/table/effects.h"

namespace ddp {

// Why a value is invalid: "not a number". The parser adds the key, its location and the allowed range.
class BadValue : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct OptionSpec {
  std::string_view topic;  // "optimizer"
  std::string_view group;  // the choices with which it has an effect: "--optimizer adam, adamw, lamb"; empty: any
  std::string_view key;    // "weight-decay"
  char letter = '\0';      // 'b' for -b
  std::string value_name;  // "NUMBER", "ring|tree|root"; empty if the option takes no value
  std::string allowed;     // for error messages: "a number from 0 to 1"
  std::string range;       // for --help: "0 to 1"; empty if value_name is sufficient
  std::string_view help;   // one line, without the group
  std::string unset;       // the default if get() returns nothing: "runs/MODEL-DATASET"
  std::string bare;        // the value if given without one on the command line; empty: a value is required
  bool command_line_only = false;
  // Which numbers of a step the option changes; nullopt: not specified, which a test reports.
  std::optional<OptionEffects> effects = std::nullopt;

  // Reads `value` into `options`; throws BadValue.
  std::function<void(Options& options, std::string_view value)> set;
  // The value in the syntax of set(), or nothing if the option is not set.
  std::function<std::optional<std::string>(const Options& options)> get;
};

// With commands, --help accepts their names.
std::vector<OptionSpec> option_table(std::span<const CommandSpec> commands = {});

struct OptionTopic {
  std::string_view name;
  std::string_view title;
};
// The options of single commands have the last topic.
inline constexpr std::string_view kCommandTopic = "commands";
std::span<const OptionTopic> option_topics();

// The help of an option outside of its group: "--optimizer rmsprop: decay rate of ...".
std::string whole_help(const OptionSpec& spec);

// The spec of `key` (without dashes), or nullptr.
const OptionSpec* find_option(std::span<const OptionSpec> table, std::string_view key);

// The key that an unknown `word` (leading dashes are ignored) stands for: what other programs call like it, or the nearest;
// "" if there is none.
std::string suggest_key(std::span<const OptionSpec> table, std::string_view word);
// The same as the end of an error message: "did you mean --lr?", or what to use in place of an option that only other
// programs have. `before` and `behind` enclose a key.
std::string key_advice(std::span<const OptionSpec> table, std::string_view word, std::string_view before = "--",
                       std::string_view behind = "");

}  // namespace ddp
