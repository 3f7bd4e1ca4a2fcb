// Writes to standard output and standard error that do not block forever if the reader has stopped reading.
//
//   write_patiently(STDERR_FILENO, line);   // gives up after 10 s; lines are then dropped until there is room
//   print_text("{}\n", line);               // to standard output; a name in it cannot move the cursor or set a title
//
// Progress output must not stop a run, and an error message must not keep a rank from exiting.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace ddp {

// Text that may come from files of other people, without what a terminal obeys: control characters but line feeds, and
// marks of the direction of writing, become '?', and bytes that are not UTF-8 become "\xE9".
std::string printable(std::string_view text);

// Formats to standard output like fmt::print(), printable.
template <class... Args>
void print_text(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print("{}", printable(fmt::format(format, std::forward<Args>(args)...)));
}

// Returns whether everything was written. A closed pipe counts as having no reader.
bool write_patiently(int descriptor, std::string_view text) noexcept;

}  // namespace ddp
