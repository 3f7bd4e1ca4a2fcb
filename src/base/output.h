// Writing to standard output and standard error without waiting for ever for a reader that has stopped reading.
//
//   write_patiently(STDERR_FILENO, line);   // within 10 s, or not at all; then lines are dropped until there is room
//
// What is to be seen of a run must not stop the run, and a line about an error must not keep a rank from ending.
#pragma once

#include <string_view>

namespace ddp {

// Whether all of it was written. A closed pipe counts as no reader.
bool write_patiently(int descriptor, std::string_view text) noexcept;

}  // namespace ddp
