#include "base/text/text_table.h"

#include <algorithm>

#include "base/error.h"

namespace ddp {
namespace {

// Characters, not bytes: UTF-8 continuation bytes do not count.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

std::string text_table(std::span<const std::vector<std::string>> given, std::span<const Align> columns) {
  // Names in the cells may come from files of other people.
  std::vector<std::vector<std::string>> rows(given.begin(), given.end());
  for (std::vector<std::string>& row : rows) std::transform(row.begin(), row.end(), row.begin(), one_line);
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], width_of(row[column]));
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - width_of(row[column]), ' ');
      const bool right = column < columns.size() && columns[column] == Align::right;
      line += (column == 0 ? "" : "  ") + (right ? padding + row[column] : row[column] + padding);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace ddp
