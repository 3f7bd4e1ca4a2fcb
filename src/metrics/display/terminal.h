// Whether an output is a terminal, and how wide, or a file or pipe.
//
//   Terminal terminal(STDOUT_FILENO);
//   if (terminal.interactive()) std::cout << std::string(terminal.columns(), '-');
//
// Note [Terminals behind mpirun]
// Open MPI gives each process its own pseudo-terminal, of size 0x0, whether mpirun itself writes to a terminal or to a
// file, and a pipe as standard error. Therefore a terminal without a size, or under mpirun a pipe, is assumed to be
// mpirun's, and the same output of the parent process is examined instead, which is mpirun if it runs on this machine.
#pragma once

#include <string>
#include <string_view>

namespace ddp {

class Terminal {
 public:
  explicit Terminal(int descriptor);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Whether lines can be redrawn in place.
  bool interactive() const { return interactive_; }
  // Whether colours and bold are wanted: on an interactive terminal, unless NO_COLOR is set (https://no-color.org).
  bool coloured() const;
  // The current width in characters; $COLUMNS or 80 without a terminal.
  int columns() const;

 private:
  int descriptor_;
  bool owned_ = false;
  bool interactive_ = false;
};

enum class Paint { bold, good, warning };
// `text` in bold, green or yellow, by the escape sequences of ECMA-48.
std::string painted(std::string_view text, Paint paint);

// Whether the character encoding of the locale is UTF-8, by LC_ALL, LC_CTYPE and LANG.
bool locale_is_utf8();

}  // namespace ddp
