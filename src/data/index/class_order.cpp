#include "data/index/class_order.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text/csv.h"
#include "base/text/text.h"
#include "base/text/utf8.h"

namespace ddp {
std::optional<std::int64_t> class_number(const std::string& text) {
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

std::vector<std::string> class_order(const std::vector<std::filesystem::path>& folders,
                                     const std::set<std::string>& names) {
  std::error_code error;
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path file = folder / kClassesFile;
    if (!std::filesystem::is_regular_file(file, error)) continue;
    std::vector<std::string> classes;
    for (const CsvRow& row : csv_rows(read_text(file, ExitCode::data), '\0')) {
      classes.push_back(trimmed(row.cells[0]));
      check(std::count(classes.begin(), classes.end(), classes.back()) == 1, ExitCode::data,
            "{}: line {}: the class '{}' is there twice; remove one", escape_name(file.string()), row.line,
            escape_name(classes.back()));
    }
    return classes;
  }
  std::vector<std::string> classes(names.begin(), names.end());
  const bool numbers =
      std::all_of(classes.begin(), classes.end(), [](const std::string& name) { return class_number(name); });
  if (numbers) {
    std::sort(classes.begin(), classes.end(), [](const std::string& a, const std::string& b) {
      return std::pair(*class_number(a), a) < std::pair(*class_number(b), b);
    });
  }
  return classes;
}

}  // namespace ddp
