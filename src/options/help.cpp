#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "options/parse.h"
#include "options/table.h"

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

std::string option_lines(const OptionSpec& spec) {
  std::string left = fmt::format("  {}--{}", spec.letter != '\0' ? fmt::format("-{}, ", spec.letter) : "", spec.key);
  if (!spec.value_name.empty()) left += " " + spec.value_name;
  std::string right(spec.help);
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
  for (const OptionSpec& spec : table) {
    if (spec.topic == topic.name) text += option_lines(spec);
  }
  return text;
}

std::string overview(const std::vector<OptionSpec>& table) {
  std::string text =
      "Data-parallel training of image classifiers, one process per GPU or per group of CPU cores.\n\n"
      "  ddp_train [COMMAND] [--config FILE] [--key value ...]\n"
      "  mpirun -np 2 ddp_train --dataset glyphs --epochs 2\n\nCommands:\n";
  for (const CommandSpec& command : command_table()) text += fmt::format("  {:<10}{}\n", command.name, command.help);
  text += "\nCommon options:\n";
  for (const OptionSpec& spec : table) {
    if (spec.common) text += option_lines(spec);
  }
  text += "\nAll options of a topic: ddp_train --help TOPIC\n";
  for (const OptionTopic& topic : option_topics()) text += fmt::format("  {:<14}{}\n", topic.name, topic.title);
  text += "  all           all topics\n";
  return text;
}

}  // namespace

std::string help_text(std::string_view topic) {
  const std::vector<OptionSpec> table = option_table();
  if (topic.empty()) return overview(table);
  if (topic == "markdown") return options_markdown();
  std::string text;
  std::vector<std::string> names;
  for (const OptionTopic& known : option_topics()) {
    names.emplace_back(known.name);
    if (topic == "all" && !text.empty()) text += '\n';
    if (topic == "all" || topic == known.name) text += topic_page(table, known);
  }
  check(!text.empty(), ExitCode::usage, "unknown help topic '{}'; the topics are {} and all", topic, join(names));
  return text;
}

}  // namespace ddp
