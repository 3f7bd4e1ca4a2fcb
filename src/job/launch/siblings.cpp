#include "job/launch/siblings.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/text/text.h"

namespace ddp {
namespace {

std::string read_proc(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_stopped(char state) { return state == 'T' || state == 't'; }

int rank_of(pid_t process) {
  const std::string environment = read_proc(fmt::format("/proc/{}/environ", process));
  constexpr std::array<std::string_view, 4> kNames = {
      "OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PMI_RANK=", "SLURM_PROCID="};
  for (const std::string_view name : kNames) {
    std::size_t begin = 0;
    while (begin < environment.size()) {
      const std::string_view variable = environment.c_str() + begin;
      int rank = -1;
      if (variable.starts_with(name) &&
          std::from_chars(variable.data() + name.size(), variable.data() + variable.size(), rank).ec == std::errc()) {
        return rank;
      }
      begin += variable.size() + 1;
    }
  }
  return -1;
}

// The other children of the launcher: ranks and any other processes that it started.
std::vector<pid_t> children_of_parent() {
  const pid_t parent = getppid();
  std::istringstream words(read_proc(fmt::format("/proc/{0}/task/{0}/children", parent)));
  return {std::istream_iterator<pid_t>(words), {}};
}

}  // namespace

char process_state(pid_t process) {
  const std::string status = read_proc(fmt::format("/proc/{}/stat", process));
  // "PID (NAME) STATE ...", where the name may contain any character.
  const std::size_t name_end = status.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= status.size() ? '\0' : status[name_end + 2];
}

std::vector<Sibling> siblings() {
  std::vector<Sibling> all;
  for (const pid_t process : children_of_parent()) {
    const int rank = rank_of(process);
    if (process == getpid() || rank >= 0) all.push_back({rank, process});
  }
  if (all.empty()) all.push_back({rank_of(getpid()), getpid()});
  std::sort(all.begin(), all.end(), [](const Sibling& a, const Sibling& b) { return a.rank < b.rank; });
  return all;
}

std::vector<Sibling> stopped_siblings() {
  std::vector<Sibling> stopped;
  for (const pid_t process : children_of_parent()) {
    if (process == getpid() || !is_stopped(process_state(process))) continue;
    stopped.push_back({rank_of(process), process});
  }
  std::sort(stopped.begin(), stopped.end(), [](const Sibling& a, const Sibling& b) { return a.rank < b.rank; });
  return stopped;
}

std::string stopped_text() {
  std::vector<std::string> words;
  for (const Sibling& each : stopped_siblings()) {
    words.push_back(each.rank < 0 ? fmt::format("process {}", each.process)
                                  : fmt::format("rank {} (process {})", each.rank, each.process));
  }
  if (is_stopped(process_state(getppid()))) words.push_back(fmt::format("the launcher (process {})", getppid()));
  if (words.empty()) return "";
  return join(words) + (words.size() == 1 ? " is stopped" : " are stopped");
}

bool first_of_siblings() {
  const int mine = rank_of(getpid());
  if (mine < 0) return true;
  const std::vector<pid_t> processes = children_of_parent();
  return std::none_of(processes.begin(), processes.end(), [mine](pid_t process) {
    const char state = process_state(process);
    if (process == getpid() || state == '\0' || state == 'Z' || is_stopped(state)) return false;
    const int rank = rank_of(process);
    return rank >= 0 && rank < mine;
  });
}

}  // namespace ddp
