// Logging: one line per event on standard error; standard output is reserved for results.
//
//   log_init(rank, size);
//   log_info("using the {} data set", name);
//   log_warning("...");   // from every rank, prefixed with its number
//
// log_info() prints on rank 0 only; warnings and errors are printed by every rank.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace ddp {

enum class LogLevel { debug, info, warning, error };

// Sets the rank of this process, by default 0 of 1.
void log_init(int rank, int size);
// The rank set by log_init().
int log_rank();

// Messages below `level` are dropped.
void log_set_level(LogLevel level);

// Shows warnings in yellow and errors in red: for standard error on a terminal.
void log_set_colours(bool coloured);

void log_line(LogLevel level, std::string_view text);

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ddp
