#include "options/parse.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text/text.h"
#include "options/batch.h"
#include "options/check.h"
#include "options/table/table.h"

namespace ddp {
namespace {

namespace po = boost::program_options;

using Table = std::vector<OptionSpec>;
using Commands = std::span<const CommandSpec>;

constexpr std::size_t kMaxFileBytes = 1 << 20;

// One `key = value` and where it was given.
struct Setting {
  const OptionSpec* spec = nullptr;
  std::string value;
  std::string file;  // empty: the command line
  int line = 0;
};

struct CommandLine {
  const CommandSpec* command = nullptr;  // null: none is given, which means train
  std::vector<std::string> folders;      // behind the command
  std::vector<Setting> settings;
};

[[noreturn]] void usage_error(const std::string& message) { throw Error(ExitCode::usage, message); }

// `text` from the user as part of a one-line message.
std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  if (text.empty()) return "''";
  std::string out(text.substr(0, kLongest));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.size() > kLongest ? out + "..." : out;
}

// "--lr 0.1x on the command line" or "x.cfg:3: lr = 0.1x".
std::string described(const Setting& setting) {
  if (setting.file.empty()) return fmt::format("--{} {} on the command line", setting.spec->key, shown(setting.value));
  return fmt::format("{}:{}: {} = {}", setting.file, setting.line, setting.spec->key, shown(setting.value));
}

po::options_description describe(const Table& table) {
  po::options_description description;
  for (const OptionSpec& spec : table) {
    std::string names(spec.key);
    if (spec.letter != '\0') names += std::string(",") + spec.letter;
    description.add_options()(names.c_str(), po::value<std::string>());
  }
  return description;
}

// The command line with the implied values made explicit: `--nesterov` becomes `--nesterov=on`, `--overlap off` becomes
// `--overlap=off`.
std::vector<std::string> complete_words(const Table& table, Commands commands, std::span<const char* const> args) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string word = args[i];
    if (word == "-h") word = "--help";
    const OptionSpec* spec = word.starts_with("--") ? find_option(table, std::string_view(word).substr(2)) : nullptr;
    if (spec != nullptr && !spec->bare.empty()) {
      const std::string_view next = i + 1 < args.size() ? args[i + 1] : "";
      // `--help eval` means the page; `--nesterov eval` the command.
      const bool is_value = spec->key == "help" || find_command(commands, next) == nullptr;
      const bool has_value = !next.empty() && !next.starts_with('-') && is_value;
      word += "=" + (has_value ? std::string(next) : spec->bare);
      if (has_value) ++i;
    }
    words.push_back(std::move(word));
  }
  return words;
}

[[noreturn]] void unknown_option(const Table& table, const std::string& word) {
  usage_error(fmt::format("unknown option {} on the command line; {}", shown(word), key_advice(table, word)));
}

const CommandSpec& known_command(Commands commands, const std::string& word) {
  if (const CommandSpec* known = find_command(commands, word)) return *known;
  std::vector<std::string> names;
  for (const CommandSpec& command : commands) names.emplace_back(command.name);
  const std::string meant = nearest(word, names);
  usage_error(fmt::format("unknown command '{}'; {}the commands are {}; options start with --", shown(word),
                          meant.empty() ? "" : fmt::format("did you mean {}? ", meant), join(names)));
}

po::parsed_options split_command_line(const Table& table, Commands commands, std::span<const char* const> args) {
  const po::options_description description = describe(table);
  namespace style = po::command_line_style;
  try {
    return po::command_line_parser(complete_words(table, commands, args))
        .options(description)
        .style(style::unix_style & ~style::allow_guessing)
        .allow_unregistered()
        .run();
  } catch (const po::error_with_option_name& error) {
    const std::string name = error.get_option_name();
    const OptionSpec* spec = find_option(table, name.substr(std::min(name.find_first_not_of('-'), name.size())));
    if (spec == nullptr) usage_error(fmt::format("command line: {}", error.what()));
    usage_error(fmt::format("{} on the command line has no value; expected {}", name, spec->allowed));
  } catch (const po::error& error) {
    usage_error(fmt::format("command line: {}", error.what()));
  }
}

CommandLine read_command_line(const Table& table, Commands commands, std::span<const char* const> args) {
  CommandLine result;
  for (const po::option& option : split_command_line(table, commands, args).options) {
    if (option.position_key >= 0) {
      for (const std::string& word : option.value) {
        if (result.command == nullptr && !commands.empty()) {
          result.command = &known_command(commands, word);
        } else if (result.command != nullptr && result.folders.size() < result.command->folders.most) {
          result.folders.push_back(word);
        } else {
          usage_error(fmt::format("unexpected '{}' on the command line; options start with --", shown(word)));
        }
      }
      continue;
    }
    const OptionSpec* spec = find_option(table, option.string_key);
    if (option.unregistered || spec == nullptr) {
      const std::string& word = option.original_tokens.empty() ? option.string_key : option.original_tokens[0];
      unknown_option(table, word.substr(0, word.find('=')));
    }
    // Boost mistakes the next option for the value of one that has none.
    if (option.original_tokens.size() == 2 && option.original_tokens[1].starts_with("--")) {
      usage_error(fmt::format("--{} on the command line has no value; expected {}", spec->key, spec->allowed));
    }
    result.settings.push_back({spec, option.value.empty() ? "" : option.value[0], "", 0});
  }
  return result;
}

std::string read_file(const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (fs::is_directory(status)) usage_error(fmt::format("--config {}: is a folder; expected a file", file));
  if (error) usage_error(fmt::format("--config {}: {}", file, errno_text(error.value())));
  if (fs::file_size(file, error) > kMaxFileBytes && !error) {
    usage_error(
        fmt::format("--config {}: larger than {}; not a configuration file", file, format_bytes(kMaxFileBytes)));
  }
  std::string text = ddp::read_text(file, ExitCode::usage);
  // A truncated copy must not silently become a run with different options.
  if (text.starts_with(kConfigBegin) && text.find(kConfigEnd) == std::string::npos) {
    usage_error(fmt::format("--config {}: is truncated, its last lines are missing; use an intact copy", file));
  }
  return text;
}

// The setting on one line of a configuration file, or one without a spec if the line is blank.
Setting read_line(const Table& table, const po::options_description& description, const std::string& text,
                  const std::string& file, int line) {
  const auto fail = [&](const std::string& why) { usage_error(fmt::format("{}:{}: {}", file, line, why)); };
  const auto is_control = [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) fail("contains a control character; not a configuration file");
  std::istringstream stream(text);
  std::vector<po::option> options;
  try {
    options = po::parse_config_file(stream, description, /*allow_unregistered=*/true).options;
  } catch (const po::error&) {
    fail(fmt::format("'{}' is not of the form key = value", shown(text)));
  }
  // Boost accepts [name] as the start of a section and returns nothing.
  const std::size_t begin = text.find_first_not_of(" \t");
  if (options.empty() && begin != std::string::npos && text[begin] != '#') {
    fail(fmt::format("'{}' is not of the form key = value", shown(text)));
  }
  if (options.empty()) return {};
  const po::option& option = options.front();
  const OptionSpec* spec = find_option(table, option.string_key);
  if (spec == nullptr) {
    fail(fmt::format("unknown key '{}'; {}", shown(option.string_key), key_advice(table, option.string_key, "'", "'")));
  }
  if (spec->command_line_only)
    fail(fmt::format("'{}' is allowed on the command line only; remove this line", spec->key));
  return {spec, option.value.empty() ? "" : option.value[0], file, line};
}

std::vector<Setting> read_config(const Table& table, const std::string& file) {
  const po::options_description description = describe(table);
  std::vector<Setting> settings;
  std::istringstream lines(read_file(file));
  std::string text;
  // Boost does not report line numbers, so it is given one line at a time.
  for (int line = 1; std::getline(lines, text); ++line) {
    if (text.ends_with('\r')) text.pop_back();
    // Some editors write a byte-order mark.
    if (line == 1 && text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
    Setting setting = read_line(table, description, text, file, line);
    if (setting.spec != nullptr) settings.push_back(std::move(setting));
  }
  if (settings.empty()) usage_error(fmt::format("--config {}: contains no options; is it the right file?", file));
  return settings;
}

// Applies all settings of one source. On the command line the last value of a key wins, so that users can append to the
// arguments of a script; in a file a second value is an error.
void apply_settings(const std::vector<Setting>& settings, Options& options) {
  std::vector<const Setting*> seen;
  for (const Setting& setting : settings) {
    const OptionSpec& spec = *setting.spec;
    for (const Setting* earlier : seen) {
      if (earlier->spec != setting.spec || setting.file.empty()) continue;
      usage_error(fmt::format("{}:{}: {} is set twice, first on line {}; remove one", setting.file, setting.line,
                              spec.key, earlier->line));
    }
    seen.push_back(&setting);
    try {
      if (setting.value.empty()) throw BadValue("empty");
      spec.set(options, setting.value);
    } catch (const BadValue& bad) {
      usage_error(fmt::format("{}: {}; expected {}", described(setting), bad.what(), spec.allowed));
    }
  }
}

// Rejects options of single commands with other commands, where they would have no effect, and a wrong number of folders.
void check_command(const CommandLine& command_line, Commands commands) {
  const CommandSpec* command = command_line.command;
  for (const Setting& setting : command_line.settings) {
    const OptionSpec& spec = *setting.spec;
    if (spec.topic != kCommandTopic || (command != nullptr && has_word(command->options, spec.key))) continue;
    const std::vector<std::string> names = names_with(commands, spec.key);
    if (names.empty()) continue;
    const std::vector<std::string> first(names.begin(), names.end() - 1);
    usage_error(fmt::format("--{} applies to the {} {}{}{} only{}", spec.key, first.empty() ? "command" : "commands",
                            join(first), first.empty() ? "" : " and ", names.back(),
                            spec.key == "checkpoint" ? "; to resume from a checkpoint, use --resume" : ""));
  }
  if (command == nullptr || command_line.folders.size() >= command->folders.least) return;
  usage_error(fmt::format("{} requires {}, such as: {}", command->name, command->folders.what, command->example));
}

bool is_batch_size(std::string_view key) {
  return key == "global-batch" || key == "batch-per-rank" || key == "batch-size";
}

}  // namespace

Options parse_options(std::span<const char* const> args, std::span<const CommandSpec> commands) {
  const Table table = option_table(commands);
  const CommandLine command_line = read_command_line(table, commands, args);
  Options given;
  if (command_line.command != nullptr) given.command = command_line.command->name;
  apply_settings(command_line.settings, given);
  if (given.help && given.help_topic.empty() && command_line.command != nullptr) given.help_topic = given.command;
  if (given.help || given.version) return given;
  check_command(command_line, commands);

  Options options;
  options.command = given.command;
  options.folders = command_line.folders;
  std::vector<Setting> from_file;
  if (!given.run.config.empty()) {
    from_file = read_config(table, given.run.config);
    apply_settings(from_file, options);
    // A batch size on the command line replaces any of the three in the file.
    if (std::any_of(command_line.settings.begin(), command_line.settings.end(),
                    [](const Setting& setting) { return is_batch_size(setting.spec->key); })) {
      options.batch.global_batch.reset();
      options.batch.batch_per_rank.reset();
      options.batch.batch_size.reset();
    }
  }
  apply_settings(command_line.settings, options);
  const auto note = [&](const Setting& setting) { options.given.keys.emplace_back(setting.spec->key); };
  std::for_each(from_file.begin(), from_file.end(), note);
  std::for_each(command_line.settings.begin(), command_line.settings.end(), note);
  check_combinations(options);
  BatchOptions& batch = options.batch;
  if (!batch.global_batch && !batch.batch_per_rank && !batch.batch_size) batch.global_batch = kDefaultGlobalBatch;
  return options;
}

Options with_stored_run(const Options& given, const std::string& config) {
  const Table table = option_table();
  const po::options_description description = describe(table);
  // Which weights to start from and how a batch is divided matter to training only.
  constexpr auto kNotTaken = std::to_array<std::string_view>(
      {"init-from", "new-classifier", "logical-shards", "balance", "sync-batch-norm", "resume", "run", "checkpoint"});
  constexpr std::string_view kStored = "model data augmentation batch optimizer parameters schedule training";
  const auto taken = [&](const OptionSpec& spec) {
    const bool described = has_word(kStored, spec.topic) || spec.key == "eval-views";
    return described && std::find(kNotTaken.begin(), kNotTaken.end(), spec.key) == kNotTaken.end() &&
           !given.given.has(spec.key);
  };
  const bool has_size = std::any_of(given.given.keys.begin(), given.given.keys.end(), is_batch_size);
  Options options = given;
  if (!has_size) options.batch.global_batch.reset();
  std::istringstream lines(config);
  std::string text;
  for (int line = 1; std::getline(lines, text); ++line) {
    const std::string key = text.substr(0, text.find_first_of(" ="));
    const OptionSpec* spec = text.starts_with('#') ? nullptr : find_option(table, key);
    if (spec == nullptr || !taken(*spec)) continue;
    if (has_size && is_batch_size(spec->key)) continue;
    const Setting setting = read_line(table, description, text, "the configuration of the checkpoint", line);
    try {
      if (setting.spec != nullptr) setting.spec->set(options, setting.value);
    } catch (const BadValue& bad) {
      throw Error(ExitCode::checkpoint, fmt::format("{}: {}; give --{} on the command line", described(setting),
                                                    bad.what(), setting.spec->key));
    }
  }
  check_combinations(options);
  return options;
}

Options with_settings(const Options& base, std::span<const OptionSetting> settings) {
  const Table table = option_table();
  Options options = base;
  std::vector<std::string> words;
  for (const OptionSetting& setting : settings) {
    words.push_back(setting.key + "=" + setting.value);
    const OptionSpec* spec = find_option(table, setting.key);
    if (spec == nullptr) {
      usage_error(fmt::format("unknown option '{}' in the setting {}; {}", shown(setting.key), shown(words.back()),
                              key_advice(table, setting.key, "")));
    }
    if (spec->command_line_only) {
      usage_error(fmt::format("the setting {}: --{} applies to the whole command", shown(words.back()), spec->key));
    }
    if (is_batch_size(spec->key)) {
      options.batch.global_batch.reset();
      options.batch.batch_per_rank.reset();
      options.batch.batch_size.reset();
    }
    try {
      if (setting.value.empty()) throw BadValue("empty");
      spec->set(options, setting.value);
    } catch (const BadValue& bad) {
      usage_error(fmt::format("the setting {}: {}; expected {}", shown(words.back()), bad.what(), spec->allowed));
    }
  }
  try {
    check_combinations(options);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("with {}: {}", join(words, " "), error.what()));
  }
  return options;
}

}  // namespace ddp
