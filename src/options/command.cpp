#include "options/command.h"

#include <algorithm>
#include <vector>

#include "base/text/text.h"

namespace ddp {

const CommandSpec* find_command(std::span<const CommandSpec> commands, std::string_view name) {
  const auto found =
      std::find_if(commands.begin(), commands.end(), [name](const CommandSpec& each) { return each.name == name; });
  return found == commands.end() ? nullptr : &*found;
}

std::vector<std::string> names_with(std::span<const CommandSpec> commands, std::string_view key) {
  std::vector<std::string> names;
  for (const CommandSpec& command : commands) {
    if (has_word(command.options, key)) names.emplace_back(command.name);
  }
  return names;
}

}  // namespace ddp
