#include "checkpoint/class_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/text/text.h"
#include "base/text/utf8.h"

namespace ddp {
namespace {

// The first names of a list.
std::string first_names(std::span<const std::string> names) {
  constexpr std::size_t kShown = 8;
  const std::string text = join(names.first(std::min(kShown, names.size())));
  return names.size() <= kShown ? text : fmt::format("{}, ... ({} in all)", text, names.size());
}

// As older versions stored a name.
std::string as_replaced(const std::string& name) {
  using Json = nlohmann::json;
  return Json::parse(Json(unescape_bytes(name)).dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::vector<std::string> forms(std::span<const std::string> names) {
  std::vector<std::string> all;
  for (const std::string& name : names) all.push_back(same_form(name));
  return all;
}

}  // namespace

std::string class_difference(std::span<const std::string> classes, std::span<const std::string> stored) {
  if (std::equal(classes.begin(), classes.end(), stored.begin(), stored.end())) return "";
  std::vector<std::string> replaced;
  for (const std::string& name : classes) replaced.push_back(as_replaced(name));
  if (std::equal(replaced.begin(), replaced.end(), stored.begin(), stored.end())) {
    std::set<std::string> seen;
    for (std::size_t i = 0; i < replaced.size(); ++i) {
      if (seen.insert(replaced[i]).second) continue;
      return fmt::format(
          "the checkpoint cannot tell its classes apart: an older ddp_train stored {} and other names as '{}'; "
          "evaluate "
          "it with that version, or rename the folders and train again",
          classes[i], replaced[i]);
    }
    return "";
  }
  std::vector<std::string> mine = forms(classes);
  std::vector<std::string> theirs = forms(stored);
  if (mine == theirs) return "";
  std::sort(mine.begin(), mine.end());
  std::sort(theirs.begin(), theirs.end());
  if (mine == theirs) {
    return fmt::format(
        "the checkpoint was trained on the same class names in another Unicode form or order ({}), in which this data "
        "set's labels are others ({}); name the folders exactly as in the checkpoint's state.json",
        first_names(stored), first_names(classes));
  }
  return fmt::format(
      "the checkpoint was trained on the classes {}, but this data set has {}; use a --data-dir with the same folders",
      first_names(stored), first_names(classes));
}

}  // namespace ddp
