// Writes to standard output and standard error that do not block forever if the reader has stopped reading.
//
//   write_patiently(STDERR_FILENO, line);   // gives up after 10 s; lines are then dropped until there is room
//
// Progress output must not stop a run, and an error message must not keep a rank from exiting.
#pragma once

#include <string_view>

namespace ddp {

// Returns whether everything was written. A closed pipe counts as having no reader.
bool write_patiently(int descriptor, std::string_view text) noexcept;

}  // namespace ddp
