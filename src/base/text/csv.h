// Tables as text: comma-separated values as RFC 4180 defines them, and other separators.
//
//   const std::vector<CsvRow> rows = csv_rows("path,label\n\"a, b.jpg\",cat\n");
//   rows[1].cells[0];                                  // "a, b.jpg"
//   const std::string cell = csv_cell("a, b.jpg");     // in quotes
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

struct CsvRow {
  std::int64_t line = 0;  // on which it begins, from 1
  std::vector<std::string> cells;
};

// Quotes enclose cells with separators, quotes and line ends, and are doubled in them. A byte-order mark, the carriage return of
// a Windows line end and empty lines are skipped.
std::vector<CsvRow> csv_rows(std::string_view text, char separator = ',');

// `text` as a cell, in quotes if it contains a comma, a quote or a line end.
std::string csv_cell(std::string_view text);

}  // namespace ddp
