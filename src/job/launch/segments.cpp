#include "job/launch/segments.h"

#include <dirent.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/host.h"
#include "base/text/text.h"
#include "job/joint_error.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// What a rank was measured to touch of its segment of 4 MiB, at least: 1.6 MiB with 16 ranks, 1.9 MiB with 2.
constexpr std::uint64_t kBytesOfRank = std::uint64_t{7} << 18U;
// Below it the folder is full.
constexpr std::uint64_t kFull = std::uint64_t{1} << 20U;
// "vader_segment.HOST.USER.JOB.RANK" of Open MPI 4, "sm_segment.HOST.USER.JOB.RANK" of 5.
constexpr std::array<std::string_view, 2> kPrefixes = {"vader_segment.", "sm_segment."};
constexpr const char* kRemedy = "give the container more (docker run --shm-size 1g), or start fewer ranks on this host";

std::uint64_t free_bytes(const char* folder) noexcept {
  struct statvfs status {};
  if (::statvfs(folder, &status) != 0) return ~std::uint64_t{0};
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

int number_of(const std::optional<std::string>& text) {
  int value = -1;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

// Whether the transport for shared memory is left out, "self,tcp" or "^vader", or has another folder.
bool elsewhere(const Environment& environment) {
  if (environment("OMPI_MCA_btl_vader_backing_directory")) return true;
  const std::string list = environment("OMPI_MCA_btl").value_or("^");
  return list.starts_with('^') == (list.find("vader") != std::string::npos);
}

bool is_segment(std::string_view name) {
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Whose name is that of this host, with or without its domain, and of this user.
bool is_ours(std::string_view name) {
  const std::string host = host_name();
  for (const std::string_view prefix : kPrefixes) {
    for (const std::string& each : {host, host.substr(0, host.find('.'))}) {
      if (name.starts_with(fmt::format("{}{}.{}.", prefix, each, ::geteuid()))) return true;
    }
  }
  return false;
}

// The names of segments that a process has mapped. None if it cannot be read, which all processes of this user can but those
// with more rights.
std::set<std::string> mapped_by(const std::string& process) {
  std::ifstream maps("/proc/" + process + "/maps");
  std::set<std::string> names;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.rfind('/');
    if (slash == std::string::npos) continue;
    std::string name = line.substr(slash + 1);
    if (const std::size_t blank = name.find(' '); blank != std::string::npos) name.resize(blank);  // "(deleted)"
    if (is_segment(name)) names.insert(std::move(name));
  }
  return names;
}

// By any process of this user; nullopt if that cannot be known.
std::optional<std::set<std::string>> mapped_names() {
  std::set<std::string> all;
  std::error_code error;
  fs::directory_iterator entry("/proc", error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) continue;
    struct stat status {};
    if (::stat(entry->path().c_str(), &status) != 0 || (status.st_uid != ::geteuid() && ::geteuid() != 0)) continue;
    all.merge(mapped_by(name));
  }
  if (error) return std::nullopt;
  return all;
}

// The number of the namespace of processes that a machine starts with (PROC_PID_INIT_INO): nothing is invisible there.
bool sees_all_processes() { return pid_namespace() == "pid:[4026531836]"; }

struct Segment {
  fs::path path;
  std::uint64_t bytes = 0;
};

std::vector<Segment> segments_in(const fs::path& folder, std::int64_t settled) {
  std::vector<Segment> found;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    struct stat status {};
    if (!is_ours(entry->path().filename().string()) || ::lstat(entry->path().c_str(), &status) != 0) continue;
    if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || ::time(nullptr) - status.st_ctime < settled)
      continue;
    found.push_back({entry->path(), static_cast<std::uint64_t>(status.st_blocks) * 512});
  }
  return found;
}

// Only what is safe in a handler of signals.
void on_bus_error(int number, siginfo_t* /*info*/, void* /*context*/) {
  if (free_bytes(kSharedMemoryFolder) < kFull) {
    constexpr std::string_view kText =
        "ddp_train: error: /dev/shm is full, through which the ranks of this host exchange messages; give the "
        "container "
        "more (docker run --shm-size 1g), remove what lies there, or start fewer ranks on this host\n";
    (void)!::write(STDERR_FILENO, kText.data(), kText.size());
    ::_exit(static_cast<int>(ExitCode::preflight));
  }
  // The access is repeated, and ends the process.
  (void)std::signal(number, SIG_DFL);
}

}  // namespace

void check_room(const Environment& environment, const fs::path& folder) {
  const int ranks = number_of(environment("OMPI_COMM_WORLD_LOCAL_SIZE"));
  if (ranks < 2 || number_of(environment("OMPI_COMM_WORLD_LOCAL_RANK")) != 0 || elsewhere(environment)) return;
  const std::uint64_t free = free_bytes(folder.c_str());
  const std::uint64_t needed = static_cast<std::uint64_t>(ranks) * kBytesOfRank;
  check(free >= needed, ExitCode::preflight,
        "{} has {} free, and {} ranks on this host need about {} to exchange messages; {}", folder.string(),
        format_bytes(free), ranks, format_bytes(needed), kRemedy);
}

std::string remove_abandoned_segments(const fs::path& folder, std::int64_t settled) {
  const std::vector<Segment> segments = segments_in(folder, settled);
  if (segments.empty() || !sees_all_processes()) return "";
  const auto mapped = mapped_names();
  if (!mapped) return "";
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  for (const Segment& segment : segments) {
    if (mapped->contains(segment.path.filename().string()) || ::unlink(segment.path.c_str()) != 0) continue;
    ++count;
    bytes += segment.bytes;
  }
  if (count == 0) return "";
  return fmt::format("removed {} of killed MPI jobs from {}, {}", counted(count, "segment"), folder.string(),
                     format_bytes(bytes));
}

void explain_bus_errors() noexcept {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  (void)::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace ddp
