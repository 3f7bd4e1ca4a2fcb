// A file to which lines are appended while training goes on. What cannot be written, because the disk is full or not there,
// is kept and written later.
//
//   LogFile metrics(File(run_dir / "metrics.jsonl", File::Mode::append, ExitCode::checkpoint));
//   metrics.write("{...}\n");   // warns once if this is not possible now
//   metrics.sync();              // throws Error(checkpoint) if something is not on disk
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace ddp {

class LogFile {
 public:
  explicit LogFile(File file);

  // Writes the lines in a single system call, after those that are still missing.
  void write(std::string_view lines);
  // Waits until everything written is on disk. Unlike write() it may be called on another thread.
  void sync();

 private:
  void put();

  File file_;
  std::mutex mutex_;
  std::uint64_t complete_;  // bytes of the file that are complete lines
  std::string missing_;
  bool failed_ = false;  // the last attempt, which may have written a part
  double retry_at_ = 0;
};

}  // namespace ddp
