#include "base/text/csv.h"

#include <utility>

namespace ddp {

std::vector<CsvRow> csv_rows(std::string_view text, char separator) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<CsvRow> rows;
  std::int64_t line = 1;
  CsvRow row{line, {""}};
  bool quoted = false;
  const auto end_row = [&] {
    if (row.cells.size() > 1 || !row.cells[0].empty()) rows.push_back(std::move(row));
    row = {line, {""}};
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      row.cells.back() += text[++i];
    } else if (c == '"' && (quoted || row.cells.back().empty())) {
      quoted = !quoted;
    } else if (c == separator && !quoted) {
      row.cells.emplace_back();
    } else if (c == '\n' && !quoted) {
      end_row();
    } else if (c != '\r' || quoted || (i + 1 < text.size() && text[i + 1] != '\n')) {
      row.cells.back() += c;
    }
  }
  end_row();
  return rows;
}

std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (const char letter : text) {
    if (letter == '"') cell += '"';
    cell += letter;
  }
  return cell + "\"";
}

}  // namespace ddp
