// Text tables: each column is as wide as its widest cell, with two blanks between columns.
//
//   const std::vector<std::vector<std::string>> rows = {{"rank", "GPU"}, {"0", "NVIDIA H200"}};
//   text_table(rows, std::vector{Align::right, Align::left});   // "rank  GPU\n   0  NVIDIA H200\n"
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ddp {

enum class Align { left, right };

// The text of a cell whose value is unknown.
inline constexpr const char* kUnknownCell = "–";

// The rows as lines without trailing blanks. Rows may differ in length; columns without an alignment are left-aligned.
// The text is UTF-8.
std::string text_table(std::span<const std::vector<std::string>> rows, std::span<const Align> columns);

}  // namespace ddp
