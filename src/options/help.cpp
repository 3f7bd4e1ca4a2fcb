#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/text/text.h"
#include "options/parse.h"
#include "options/table/table.h"

namespace ddp {
namespace {

constexpr std::size_t kIndent = 34;
constexpr std::size_t kWidth = 100;

// `text` in lines of at most `width` characters, the later ones indented.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t column = indent;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

// One option; in a list under the heading of its group, or by itself.
std::string option_lines(const OptionSpec& spec, bool in_group) {
  std::string left = fmt::format("  {}--{}", spec.letter != '\0' ? fmt::format("-{}, ", spec.letter) : "", spec.key);
  if (!spec.value_name.empty()) left += " " + spec.value_name;
  std::string right = in_group ? std::string(spec.help) : whole_help(spec);
  std::string notes = spec.range;
  const auto value = spec.get(Options{});
  const std::string standard = value ? *value : spec.unset;
  if (!standard.empty()) notes += (notes.empty() ? "" : "; ") + fmt::format("default {}", standard);
  if (!notes.empty()) right += fmt::format(" ({})", notes);
  if (left.size() + 1 > kIndent) {
    left += "\n" + std::string(kIndent, ' ');
  } else {
    left.resize(kIndent, ' ');
  }
  return left + wrapped(right, kIndent, kWidth) + "\n";
}

std::string topic_page(const std::vector<OptionSpec>& table, const OptionTopic& topic) {
  std::string text = fmt::format("{}: {}\n", topic.name, topic.title);
  std::string_view group;
  for (const OptionSpec& spec : table) {
    if (spec.topic != topic.name) continue;
    if (spec.group != group && !spec.group.empty()) text += fmt::format(" {}:\n", spec.group);
    group = spec.group;
    text += option_lines(spec, true);
  }
  return text;
}

// Those of `list`, in this order, each by itself.
std::string listed_options(const std::vector<OptionSpec>& table, std::string_view list) {
  std::string text;
  std::istringstream keys{std::string(list)};
  for (std::string key; keys >> key;) {
    const OptionSpec* spec = find_option(table, key);
    DDP_ASSERT(spec != nullptr);
    // Those of single commands are on the pages of these.
    text += option_lines(*spec, spec->topic == kCommandTopic);
  }
  return text;
}

// `list`: names of topics; kTrainingTopics: all but that of single commands; empty: all.
std::string listed_topics(std::string_view list) {
  std::string text;
  for (const OptionTopic& topic : option_topics()) {
    const bool listed = list == kTrainingTopics ? topic.name != kCommandTopic : has_word(list, topic.name);
    if (list.empty() || listed) text += fmt::format("  {:<14}{}\n", topic.name, topic.title);
  }
  return text;
}

std::string command_page(const std::vector<OptionSpec>& table, const CommandSpec& command) {
  std::string text = fmt::format("{}: {}\n\nUsage:    ddp_train {}\nExample:  {}\n", command.name, command.purpose,
                                 command.usage, command.example);
  if (!command.options.empty()) text += "\nOptions:\n" + listed_options(table, command.options);
  if (!command.topics.empty()) {
    text += "\nAlso the options of these topics, which ddp_train --help TOPIC lists:\n" + listed_topics(command.topics);
  }
  return text;
}

std::string overview(const std::vector<OptionSpec>& table, std::span<const CommandSpec> commands) {
  std::string text =
      "Data-parallel training of image classifiers, one process per GPU or per group of CPU cores.\n\n"
      "  ddp_train [COMMAND] [--config FILE] [--key value ...]\n";
  if (!commands.empty()) text += fmt::format("  {}\n", commands.front().example);
  text += "\nCommands, each with a page of its own: ddp_train COMMAND --help\n";
  for (const CommandSpec& command : commands) text += fmt::format("  {:<10}{}\n", command.name, command.purpose);
  if (!commands.empty()) text += "\nCommon options:\n" + listed_options(table, commands.front().options);
  text += "\nAll options of a topic: ddp_train --help TOPIC\n" + listed_topics("") + "  all           all topics\n";
  return text;
}

}  // namespace

std::string help_text(std::string_view page, std::span<const CommandSpec> commands) {
  const std::vector<OptionSpec> table = option_table(commands);
  if (page.empty()) return overview(table, commands);
  if (page == "markdown") return options_markdown(commands);
  if (const CommandSpec* command = find_command(commands, page)) return command_page(table, *command);
  std::string text;
  std::vector<std::string> names;
  for (const OptionTopic& known : option_topics()) {
    names.emplace_back(known.name);
    if (page == "all" && !text.empty()) text += '\n';
    if (page == "all" || page == known.name) text += topic_page(table, known);
  }
  check(!text.empty(), ExitCode::usage, "unknown help topic '{}'; the topics are {} and all", page, join(names));
  return text;
}

}  // namespace ddp
