#include <fmt/core.h>

#include "options/parse.h"
#include "options/table/table.h"

namespace ddp {

std::string dump_config(const Options& options) {
  const std::vector<OptionSpec> table = option_table();
  std::string text = fmt::format("{}; --help all explains them.\n", kConfigBegin);
  for (const OptionTopic& topic : option_topics()) {
    text += fmt::format("\n# {}: {}\n", topic.name, topic.title);
    for (const OptionSpec& spec : table) {
      if (spec.topic != topic.name || spec.command_line_only) continue;
      const auto value = spec.get(options);
      const std::string line = value ? fmt::format("{} = {}", spec.key, *value) : fmt::format("# {} =", spec.key);
      text += fmt::format("{:<30} # {}\n", line, whole_help(spec));
    }
  }
  text += fmt::format("\n{}\n", kConfigEnd);
  return text;
}

}  // namespace ddp
