#include "job/launch/launcher.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "base/log.h"
#include "job/joint_error.h"

namespace ddp {
namespace {

std::optional<int> number(const Environment& environment, const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || stop != text->data() + text->size()) return std::nullopt;
  return value;
}

struct Launcher {
  const char* size_variable;
  const char* rank_variable;
  const char* advice;
};

// The variables of launchers, innermost launcher first.
constexpr std::array kLaunchers = {
    Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "use the mpirun of that library"},
    Launcher{"PMI_SIZE", "PMI_RANK", "use the mpirun of that library, or srun --mpi=pmix"},
    Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "use srun --mpi=pmix, or mpirun"},
    Launcher{"WORLD_SIZE", "RANK", "use mpirun instead of torchrun"},
};

[[noreturn]] void refuse(const Launcher& launcher, int copies, int copy, const std::string& mpi_library) {
  throw JointError(ExitCode::preflight,
                   fmt::format("{} is {}, but MPI ({}) started this process as a single rank; {}",
                               launcher.size_variable, copies, mpi_library, launcher.advice),
                   copy == 0);
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

void check_before_start(const Environment& environment) {
  const auto tasks = number(environment, "SLURM_STEP_NUM_TASKS");
  const auto task = number(environment, "SLURM_PROCID");
  if (!tasks || !task || *tasks < 2 || !environment("SLURM_STEP_ID")) return;
  constexpr std::array kMeans = {
      "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMIX_RANK", "PMI_RANK", "PMI_FD", "PMI_SIZE", "RANK", "PMI_PORT"};
  const auto is_set = [&environment](const char* name) { return environment(name).has_value(); };
  if (std::any_of(kMeans.begin(), kMeans.end(), is_set)) return;
  throw JointError(ExitCode::preflight,
                   fmt::format("srun started {} tasks (SLURM_STEP_NUM_TASKS) without an MPI plugin that connects "
                               "them; use srun --mpi=pmix, or mpirun",
                               *tasks),
                   *task == 0);
}

void check_launch(const Environment& environment, int mpi_size, const std::string& mpi_library) {
  if (mpi_size > 1) return;
  for (const Launcher& launcher : kLaunchers) {
    const auto copies = number(environment, launcher.size_variable);
    const auto copy = number(environment, launcher.rank_variable);
    // A size without a rank was not set by a launcher but, for example, exported in a job script.
    if (!copies || !copy) continue;
    if (*copies > 1) refuse(launcher, *copies, *copy, mpi_library);
    return;
  }
  const auto pmix_rank = number(environment, "PMIX_RANK");
  if (pmix_rank && *pmix_rank > 0) {
    throw JointError(
        ExitCode::preflight,
        fmt::format("PMIX_RANK is {}, but MPI ({}) started this process as a single rank; use the mpirun of that "
                    "library",
                    *pmix_rank, mpi_library),
        *pmix_rank == 1);
  }
  for (const char* name : {"SLURM_NTASKS", "WORLD_SIZE"}) {
    const auto copies = number(environment, name);
    if (copies && *copies > 1) {
      log_warning(
          "{} is {}, but this run has a single rank; start it with mpirun or srun --mpi=pmix to use all of them", name,
          *copies);
      return;
    }
  }
}

bool has_launcher(const Environment& environment) {
  constexpr std::array kVariables = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  return std::any_of(kVariables.begin(), kVariables.end(), [&](const char* name) { return environment(name); });
}

bool bound_by_default(const Environment& environment) {
  constexpr std::array kChoices = {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_rmaps_base_mapping_policy",
                                   "OMPI_MCA_rmaps_rank_file_path",      "OMPI_MCA_orte_rankfile",
                                   "OMPI_MCA_hwloc_base_cpu_list",       "OMPI_MCA_hwloc_base_cpu_set"};
  const auto is_set = [&environment](const char* name) { return environment(name).has_value(); };
  return environment("OMPI_MCA_orte_bound_at_launch") == "1" && std::none_of(kChoices.begin(), kChoices.end(), is_set);
}

void end_cut_off_daemon() noexcept {
  const pid_t daemon = getppid();
  const std::string path = fmt::format("/proc/{}/comm", daemon);
  const auto is_daemon = [&path] {
    std::array<char, 16> name{};
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const ssize_t length = ::read(file, name.data(), name.size());
    ::close(file);
    return std::string_view(name.data(), static_cast<std::size_t>(std::max<ssize_t>(0, length))) == "orted\n";
  };
  if (!is_daemon() || ::fork() != 0) return;
  // Only system calls from here on: other threads may have held locks. The ranks end first.
  (void)::setsid();
  (void)::syscall(SYS_close_range, 0U, ~0U, 0U);
  for (const int number : {SIGTERM, SIGKILL}) {
    ::sleep(2);
    if (!is_daemon()) break;
    (void)::kill(daemon, number);
  }
  ::_exit(0);
}

}  // namespace ddp
