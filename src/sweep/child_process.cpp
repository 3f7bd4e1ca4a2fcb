#include "sweep/child_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace ddp {
namespace {

std::vector<std::string> child_environment(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool replaced =
        std::any_of(added.begin(), added.end(), [name](const auto& variable) { return variable.first == name; });
    if (!replaced && !is_of_launcher(name)) result.emplace_back(text);
  }
  for (const auto& [name, value] : added) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

cpu_set_t set_of(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  return set;
}

}  // namespace

bool is_of_launcher(std::string_view variable) {
  constexpr std::array<std::string_view, 4> kKept = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                                                     "OMPI_MCA_btl_vader_single_copy_mechanism", "SLURM_JOB_ID"};
  constexpr std::array<std::string_view, 10> kPrefixes = {"OMPI_", "PMIX_", "PMI_",  "PRTE_",    "ORTE_",
                                                          "OPAL_", "MPI_",  "HYDI_", "MPIEXEC_", "SLURM_"};
  constexpr std::array<std::string_view, 6> kNames = {"WORLD_SIZE",  "RANK",        "LOCAL_RANK",
                                                      "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE"};
  if (std::find(kKept.begin(), kKept.end(), variable) != kKept.end()) return false;
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](auto prefix) { return variable.starts_with(prefix); }) ||
         std::find(kNames.begin(), kNames.end(), variable) != kNames.end();
}

ChildProcess::ChildProcess(const Start& start) {
  // Everything that allocates is done before fork(), as other threads may hold the allocator's lock.
  std::vector<std::string> arguments = start.arguments;
  std::vector<std::string> variables = child_environment(start.environment);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  const cpu_set_t cpus = set_of(start.cpus);
  const bool binds = !start.cpus.empty();
  const Descriptor output(
      ::open(start.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  if (output.get() < 0) file_error(ExitCode::checkpoint, "write", start.output, errno);
  check_own_file(output.get(), start.output, ExitCode::checkpoint);
  const Descriptor input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t parent = ::getpid();
  process_ = ::fork();
  check(process_ >= 0, ExitCode::internal, "cannot start {}: {}", start.arguments[0], errno_text(errno));
  if (process_ != 0) return;
  // Only calls that are safe after fork() from here on. A session of its own: Ctrl-C reaches this process alone, which
  // passes requests to stop on.
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (binds) ::sched_setaffinity(0, sizeof cpus, &cpus);
  ::dup2(input.get(), STDIN_FILENO);
  ::dup2(output.get(), STDOUT_FILENO);
  ::dup2(output.get(), STDERR_FILENO);
  // What MPI and libraries have open.
  ::close_range(3, ~0U, 0);
  ::execve(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

ChildProcess::~ChildProcess() {
  if (ended()) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

std::optional<ChildProcess::End> ChildProcess::ended() {
  if (end_) return end_;
  int status = 0;
  const pid_t result = ::waitpid(process_, &status, WNOHANG);
  if (result == 0 || (result < 0 && errno == EINTR)) return std::nullopt;
  // A process that somebody else has reaped.
  if (result < 0) return end_ = End{127, 0};
  return end_ = WIFSIGNALED(status) ? End{128 + WTERMSIG(status), WTERMSIG(status)} : End{WEXITSTATUS(status), 0};
}

void ChildProcess::signal(int number) const {
  if (!end_) ::kill(process_, number);
}

}  // namespace ddp
