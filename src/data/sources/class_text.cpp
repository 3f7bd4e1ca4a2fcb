#include "data/sources/class_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/text/text.h"

namespace ddp {

std::string class_text(const Dataset& data) {
  constexpr std::size_t kShownClasses = 6;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(data.classes()));
  for (std::int64_t i = 0; i < data.size(); ++i) ++counts[static_cast<std::size_t>(data.label(i))];
  const auto text_of_count = [](std::int64_t count) { return format_count(static_cast<std::uint64_t>(count)); };
  const std::vector<std::string>& names = data.class_names();
  std::string text = text_of_count(data.classes());
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  const std::string each =
      *least == *most ? text_of_count(*most) : fmt::format("{} to {}", text_of_count(*least), text_of_count(*most));
  if (names.empty()) return fmt::format("{}, of {} images", text, each);
  std::vector<std::string> parts;
  for (std::size_t c = 0; c < std::min(kShownClasses, names.size()); ++c) {
    parts.push_back(fmt::format("{} {}", names[c], text_of_count(counts[c])));
  }
  text += ": " + join(parts);
  return names.size() > kShownClasses ? fmt::format("{}, ...; of {} images", text, each) : text + " images";
}

}  // namespace ddp
