// Suggestions for misspelled and foreign keys.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "base/text/text.h"
#include "options/foreign_names.h"
#include "options/table/table.h"

namespace ddp {
namespace {

// As the table writes keys: --Data_Dir is data-dir.
std::string key_like(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string key(word);
  for (char& c : key) c = c == '_' || c == '.' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return key;
}

// The only key that begins with `word`, or "".
std::string completed(std::span<const OptionSpec> table, std::string_view word) {
  std::string found;
  for (const OptionSpec& spec : table) {
    if (!spec.key.starts_with(word)) continue;
    if (!found.empty()) return "";
    found = spec.key;
  }
  return found;
}

// Short words are near to many keys, so of these one letter may be wrong.
std::string misspelled(std::span<const OptionSpec> table, const std::string& word) {
  constexpr std::size_t kShort = 6;
  std::vector<std::string> keys;
  keys.reserve(table.size());
  for (const OptionSpec& spec : table) keys.emplace_back(spec.key);
  const std::string key = nearest(word, keys);
  return word.size() < kShort && edit_distance(word, key) > 1 ? "" : key;
}

}  // namespace

std::string suggest_key(std::span<const OptionSpec> table, std::string_view word) {
  std::string meant = key_like(word);
  if (find_option(table, meant) != nullptr) return meant;
  if (const ForeignNames* elsewhere = find_foreign(meant)) return std::string(elsewhere->key);
  if (meant.size() < 2) return "";
  const std::string whole = completed(table, meant);
  return whole.empty() ? misspelled(table, meant) : whole;
}

std::string key_advice(std::span<const OptionSpec> table, std::string_view word, std::string_view before,
                       std::string_view behind) {
  const std::string meant = key_like(word);
  const ForeignNames* elsewhere = find_option(table, meant) == nullptr ? find_foreign(meant) : nullptr;
  if (elsewhere != nullptr && !elsewhere->advice.empty()) return std::string(elsewhere->advice);
  const std::string key = suggest_key(table, word);
  return key.empty() ? "--help all lists all options" : fmt::format("did you mean {}{}{}?", before, key, behind);
}

}  // namespace ddp
