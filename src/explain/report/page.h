// What the pages of the report have in common: the style sheet, tables, and the page around a body.
//
//   const std::vector<std::string> head = {"class", "accuracy"};
//   const std::vector<std::vector<std::string>> rows = {{"cat", "93.0%"}};
//   const std::string html = page("ddp_train: runs/a", html_table(head, rows, /*numbers=*/{1}));
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

namespace ddp {

// Needs no network and no scripts, adapts to light and dark and to narrow screens, and can be printed.
std::string page(const std::string& title, const std::string& body);

// The cells are text; the first of each row is its header. `numbers`: columns that are aligned to the right. On a narrow
// screen the table scrolls, and a line says so.
std::string html_table(std::span<const std::string> head, std::span<const std::vector<std::string>> rows,
                       const std::set<std::size_t>& numbers = {});

// "<h2>...</h2>" with `content`, or "" if there is none.
std::string section(const std::string& title, const std::string& content);

}  // namespace ddp
