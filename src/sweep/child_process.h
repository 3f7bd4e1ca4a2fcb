// A program that runs beside this one, with its output in a file.
//
//   ChildProcess child({.arguments = {"/usr/bin/ddp_train", "--epochs", "1"}, .output = "trial-0001.log", .cpus = {0, 1}});
//   while (!child.ended()) std::this_thread::sleep_for(100ms);
//   child.ended()->code;   // 0
//
// It does not inherit what a launcher (mpirun, srun, torchrun) has put into the environment, so MPI sees a job of its own.
// It receives SIGKILL if this process ends.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp {

class ChildProcess {
 public:
  struct Start {
    std::vector<std::string> arguments;                            // the program's path and its arguments
    std::vector<std::pair<std::string, std::string>> environment;  // added to that of this process
    std::filesystem::path output;                                  // standard output and error, appended
    std::vector<int> cpus;                                         // its affinity; empty: that of this thread
  };
  // How it ended: an exit code, or the signal that ended it.
  struct End {
    int code = 0;
    int signal = 0;
  };

  // Throws Error(checkpoint) if `output` cannot be opened, and Error(internal) if no process can be started.
  explicit ChildProcess(const Start& start);
  // Kills it if it has not ended.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Nothing while it runs; does not wait.
  std::optional<End> ended();
  void signal(int number) const;

 private:
  pid_t process_ = -1;
  std::optional<End> end_;
};

// Whether a variable of the environment comes from a launcher and would make MPI believe that it is part of its job.
bool is_of_launcher(std::string_view variable);

}  // namespace ddp
