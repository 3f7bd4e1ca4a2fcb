// Whether an output is a terminal, and how wide, or a file or pipe.
//
//   Terminal terminal(STDOUT_FILENO);
//   if (terminal.interactive()) std::cout << std::string(terminal.columns(), '-');
//
// Note [Terminals behind mpirun]
// Open MPI gives each process its own pseudo-terminal, of size 0x0, whether mpirun itself writes to a terminal or to a
// file. Therefore a terminal without a size is assumed to be mpirun's, and the standard output of the parent process is
// examined instead, which is mpirun if it runs on this machine.
#pragma once

namespace ddp {

class Terminal {
 public:
  explicit Terminal(int descriptor);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Whether lines can be redrawn in place.
  bool interactive() const { return interactive_; }
  // The current width in characters; $COLUMNS or 80 without a terminal.
  int columns() const;

 private:
  int descriptor_;
  bool owned_ = false;
  bool interactive_ = false;
};

// Whether the character encoding of the locale is UTF-8, by LC_ALL, LC_CTYPE and LANG.
bool locale_is_utf8();

}  // namespace ddp
