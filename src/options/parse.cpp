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
#include "base/text.h"
#include "options/batch.h"
#include "options/check.h"
#include "options/table.h"

namespace ddp {
namespace {

namespace po = boost::program_options;

using Table = std::vector<OptionSpec>;

constexpr std::size_t kMaxFileBytes = 1 << 20;

// One `key = value` and where it was given.
struct Setting {
  const OptionSpec* spec = nullptr;
  std::string value;
  std::string file;  // empty: the command line
  int line = 0;
};

struct CommandLine {
  std::string command = "train";
  std::vector<std::string> folders;  // behind the command
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

bool is_command(std::string_view word) {
  const std::span<const CommandSpec> commands = command_table();
  return std::any_of(commands.begin(), commands.end(),
                     [word](const CommandSpec& command) { return command.name == word; });
}

bool is_topic(std::string_view word) {
  const std::span<const OptionTopic> topics = option_topics();
  return std::any_of(topics.begin(), topics.end(), [word](const OptionTopic& topic) { return topic.name == word; });
}

// The command line with the implied values made explicit: `--nesterov` becomes `--nesterov=on`, `--overlap off` becomes
// `--overlap=off`.
std::vector<std::string> complete_words(const Table& table, std::span<const char* const> args) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string word = args[i];
    if (word == "-h") word = "--help";
    const OptionSpec* spec = word.starts_with("--") ? find_option(table, std::string_view(word).substr(2)) : nullptr;
    if (spec != nullptr && !spec->bare.empty()) {
      const std::string_view next = i + 1 < args.size() ? args[i + 1] : "";
      // `--help bench` means the topic; `--nesterov eval` the command.
      const bool is_value = !is_command(next) || (spec->key == "help" && is_topic(next));
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

std::string known_command(const std::string& word) {
  if (is_command(word)) return word;
  std::vector<std::string> names;
  for (const CommandSpec& command : command_table()) names.emplace_back(command.name);
  const std::string meant = nearest(word, names);
  usage_error(fmt::format("unknown command '{}'; {}the commands are {}; options start with --", shown(word),
                          meant.empty() ? "" : fmt::format("did you mean {}? ", meant), join(names)));
}

po::parsed_options split_command_line(const Table& table, std::span<const char* const> args) {
  const po::options_description description = describe(table);
  namespace style = po::command_line_style;
  try {
    return po::command_line_parser(complete_words(table, args))
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

// Runs in one report; their lines have eight colours.
constexpr std::size_t kMostReported = 8;

// How many folders a command takes beside its options.
std::size_t most_folders(const std::string& command) {
  if (command == "report") return kMostReported;
  if (command == "compare") return 2;
  return command == "replay" || command == "explain" ? 1 : 0;
}

CommandLine read_command_line(const Table& table, std::span<const char* const> args) {
  CommandLine result;
  bool has_command = false;
  for (const po::option& option : split_command_line(table, args).options) {
    if (option.position_key >= 0) {
      for (const std::string& word : option.value) {
        if (has_command && result.folders.size() < most_folders(result.command)) {
          result.folders.push_back(word);
          continue;
        }
        if (has_command) {
          usage_error(fmt::format("unexpected '{}' on the command line; options start with --", shown(word)));
        }
        result.command = known_command(word);
        has_command = true;
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

// The commands that read an option; empty: all that train or plan.
std::vector<std::string> commands_of(const OptionSpec& spec) {
  if (spec.key == "to") return {"export", "report", "scaling"};
  if (spec.key == "run" || spec.key == "checkpoint") return {"export", "eval"};
  if (!is_command(spec.topic)) return {};
  return {std::string(spec.topic)};
}

// Rejects options of single commands with other commands, where they would have no effect.
void check_command(const CommandLine& command_line) {
  for (const Setting& setting : command_line.settings) {
    const std::vector<std::string> commands = commands_of(*setting.spec);
    if (commands.empty() || std::find(commands.begin(), commands.end(), command_line.command) != commands.end())
      continue;
    const std::vector<std::string> first(commands.begin(), commands.end() - 1);
    usage_error(fmt::format("--{} applies to the {} {}{}{} only{}", setting.spec->key,
                            first.empty() ? "command" : "commands", join(first), first.empty() ? "" : " and ",
                            commands.back(),
                            setting.spec->key == "checkpoint" ? "; to resume from a checkpoint, use --resume" : ""));
  }
}

void check_split_linear(const Options& options) {
  check(
      !options.optimizer.deterministic, ExitCode::usage,
      "--split-linear cannot be combined with --deterministic: gradients of activations are summed over the ranks, and "
      "the bits depend on their number; remove one of the two");
  check(options.optimizer.optimizer != UpdateRule::muon, ExitCode::usage,
        "--split-linear cannot be combined with --optimizer muon, which updates whole weights; remove one of the two");
  check(!options.batch.balance, ExitCode::usage,
        "--split-linear requires as many logical shards on each rank, but --balance moves them; remove one of the two");
}

void check_pipeline(const Options& options) {
  const std::string& command = options.command;
  check(command != "bench" && command != "check" && command != "scaling" && command != "explain", ExitCode::usage,
        "--pipeline applies to the commands train, sweep and plan only; remove it");
  const auto refuse = [](bool given, std::string_view option, std::string_view reason) {
    check(!given, ExitCode::usage, "--pipeline cannot be combined with {}, {}; remove one of the two", option, reason);
  };
  refuse(splits_linear(options.distributed), "--split-linear", "which divides the same ranks in another way");
  refuse(options.model.sync_batch_norm, "--sync-batch-norm", "as the shards of a replica are not at a layer together");
  refuse(options.batch.balance, "--balance on", "as all stages of a replica process the same shards");
  refuse(options.data.progressive_size.has_value(), "--progressive-size", "which has a network for each size");
  refuse(options.device.steps_in_flight > 1, "--steps-in-flight of more than 1", "as the stages wait for each other");
}

void check_combinations(const Options& options) {
  const OptimizerOptions& o = options.optimizer;
  check_optimizer(o);
  check_schedule(o);
  check_progressive(options.data);
  check_loss_scale(options);
  check(o.warmup_epochs <= o.epochs, ExitCode::usage, "--warmup-epochs {} is greater than --epochs {}", o.warmup_epochs,
        o.epochs);
  check(!options.model.new_classifier || !options.model.init_from.empty() || options.model.model.ends_with(".onnx"),
        ExitCode::usage,
        "--new-classifier requires --init-from or --model FILE.onnx, which initializes the other layers");
  check(!options.model.sync_batch_norm || !options.batch.balance, ExitCode::usage,
        "--sync-batch-norm requires one logical shard per rank, --balance on more of them");
  check(!options.batch.balance || options.device.steps_in_flight <= 1, ExitCode::usage,
        "--balance on cannot be combined with --steps-in-flight of more than 1, as shards are moved between steps; "
        "remove "
        "one of the two");
  if (splits_linear(options.distributed)) check_split_linear(options);
  if (options.distributed.pipeline > 1) check_pipeline(options);
  check(options.command != "export" || !options.exported.to.empty(), ExitCode::usage,
        "export requires --to FILE, the output file");
  const ExportOptions& exported = options.exported;
  const bool named_onnx = exported.to.ends_with(".onnx");
  const bool named_weights = exported.to.ends_with(".safetensors");
  check(!(named_weights && exported.format == ExportFormat::onnx) &&
            !(named_onnx && exported.format == ExportFormat::safetensors),
        ExitCode::usage,
        "--to {} has the extension of another format than --format {}; remove --format or rename the file", exported.to,
        to_string(exported.format));
  check(options.command != "export" || exported.format != ExportFormat::automatic || named_onnx || named_weights,
        ExitCode::usage, "--to {} ends in neither .onnx nor .safetensors; rename it or set --format", exported.to);
  check(!exported.fold_batch_norm || format_of(exported) == ExportFormat::onnx, ExitCode::usage,
        "--fold-batch-norm requires --format onnx; a safetensors file contains every layer");
  const std::vector<int>& rand_augment = options.data.rand_augment;
  check(rand_augment.empty() ||
            (rand_augment.size() == 2 && rand_augment[0] > 0 && rand_augment[0] <= 14 && rand_augment[1] <= 30),
        ExitCode::usage,
        "--rand-augment requires a number of operations from 1 to 14 and a magnitude from 0 to 30, such as 2,9");
  check(options.data.random_crop_fill == CropFill::black || options.data.random_crop_padding > 0, ExitCode::usage,
        "--random-crop-fill requires --random-crop-padding > 0");
  check(options.data.mixup_per == MixPer::sample || mixes(options.data), ExitCode::usage,
        "--mixup-per requires --mixup or --cutmix");
  const DeviceOptions& device = options.device;
  check(device.gpu_description.empty() || options.command == "plan", ExitCode::usage,
        "--gpu-description applies to the command plan only: nothing runs on a GPU that is only described");
  check(device.gpu_description.empty() || device.device != DeviceChoice::cpu, ExitCode::usage,
        "--gpu-description has no effect with --device cpu; remove one of the two");
  check_batch_choice(options.batch);
}

bool is_batch_size(std::string_view key) {
  return key == "global-batch" || key == "batch-per-rank" || key == "batch-size";
}

}  // namespace

Options parse_options(std::span<const char* const> args) {
  const Table table = option_table();
  const CommandLine command_line = read_command_line(table, args);
  Options given;
  given.command = command_line.command;
  apply_settings(command_line.settings, given);
  if (given.help && given.help_topic.empty() && is_topic(given.command)) given.help_topic = given.command;
  if (given.help || given.version) return given;
  check_command(command_line);
  check(command_line.command != "compare" || command_line.folders.size() == 2, ExitCode::usage,
        "compare requires the folders of two runs, such as: ddp_train compare runs/a runs/b");
  check(command_line.command != "report" || !command_line.folders.empty(), ExitCode::usage,
        "report requires the folders of one or several runs, such as: ddp_train report runs/a runs/b");
  check(command_line.command != "explain" || !command_line.folders.empty(), ExitCode::usage,
        "explain requires the folder of a run, such as: ddp_train explain runs/lenet-mnist");
  check(command_line.command != "replay" || !command_line.folders.empty(), ExitCode::usage,
        "replay requires the folder that a run wrote about a step, such as: ddp_train replay RUN/nonfinite-7");

  Options options;
  options.command = command_line.command;
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
  check(!options.json || options.command == "eval", ExitCode::usage, "--json applies to the command eval only");
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
  const auto taken = [&](const OptionSpec& spec) {
    const bool described = spec.topic == "model" || spec.topic == "data" || spec.topic == "batch" ||
                           spec.topic == "optimizer" || spec.topic == "schedule" || spec.key == "eval-views";
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
