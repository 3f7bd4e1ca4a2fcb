#include "data/shards/shard_names.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/text/text.h"
#include "base/text/utf8.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostShards = 1'000'000;

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size() || number < 0)
    return std::nullopt;
  return number;
}

// What stands for `{inside}`; nothing if it is neither a range nor a list, and so means itself.
std::vector<std::string> choices_of(std::string_view inside) {
  std::vector<std::string> choices;
  if (const std::size_t dots = inside.find(".."); dots != std::string_view::npos) {
    const std::string_view from = inside.substr(0, dots);
    const std::optional<std::int64_t> first = number_of(from);
    const std::optional<std::int64_t> last = number_of(inside.substr(dots + 2));
    if (!first || !last || *last < *first || *last - *first >= static_cast<std::int64_t>(kMostShards)) return {};
    const std::size_t width = from.size() > 1 && from.front() == '0' ? from.size() : 0;
    for (std::int64_t i = *first; i <= *last; ++i) choices.push_back(fmt::format("{:0{}}", i, width));
    return choices;
  }
  if (inside.find(',') == std::string_view::npos) return {};
  for (std::size_t begin = 0; begin <= inside.size();) {
    const std::size_t end = std::min(inside.find(',', begin), inside.size());
    choices.emplace_back(inside.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

std::vector<std::string> expand(const std::string& pattern) {
  for (std::size_t open = pattern.find('{'); open != std::string::npos; open = pattern.find('{', open + 1)) {
    const std::size_t close = pattern.find('}', open);
    if (close == std::string::npos) break;
    const std::vector<std::string> choices = choices_of(std::string_view(pattern).substr(open + 1, close - open - 1));
    if (choices.empty()) continue;
    const std::vector<std::string> rests = expand(pattern.substr(close + 1));
    check(choices.size() * rests.size() <= kMostShards, ExitCode::usage, "'{}' names more than {} files",
          escape_name(pattern), kMostShards);
    std::vector<std::string> all;
    for (const std::string& choice : choices) {
      const std::string begin = pattern.substr(0, open) + choice;
      for (const std::string& rest : rests) all.push_back(begin + rest);
    }
    return all;
  }
  return {pattern};
}

std::vector<fs::path> files_of(const fs::path& folder, const std::vector<std::string>& suffixes) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool fits = std::any_of(suffixes.begin(), suffixes.end(),
                                  [&](const std::string& suffix) { return name.find(suffix) != std::string::npos; });
    if (fits && !name.starts_with('.')) files.push_back(entry->path());
  }
  check(!error, ExitCode::data, "{}: cannot be listed: {}; check its permissions", escape_name(folder.string()),
        error.message());
  check(!files.empty(), ExitCode::data,
        "{}: has no file with {} in its name; give the shards as in train-{{0000..0127}}{}",
        escape_name(folder.string()), join(suffixes, " or "), suffixes.front());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<fs::path> shard_names(const std::string& pattern, const std::vector<std::string>& suffixes) {
  std::vector<fs::path> files;
  std::error_code error;
  const auto add = [&](const std::string& name) {
    if (fs::is_directory(name, error)) {
      const std::vector<fs::path> inside = files_of(name, suffixes);
      files.insert(files.end(), inside.begin(), inside.end());
    } else {
      files.emplace_back(name);
    }
  };
  if (fs::exists(pattern, error)) {
    add(pattern);
  } else {
    for (const std::string& name : expand(pattern)) add(name);
  }
  check(!files.empty(), ExitCode::usage, "no shards are named; give --data-dir as in 'shards/train-{{0000..0127}}{}'",
        suffixes.front());
  std::size_t missing = 0;
  const fs::path* first = nullptr;
  for (const fs::path& file : files) {
    if (fs::exists(file, error)) continue;
    if (missing++ == 0) first = &file;
  }
  check(missing == 0, ExitCode::data, "{}: does not exist{}; correct --data-dir or --val-dir",
        first == nullptr ? "" : escape_name(first->string()),
        missing > 1 ? fmt::format(", and {} more of the {} shards", missing - 1, files.size()) : "");
  return files;
}

}  // namespace ddp
