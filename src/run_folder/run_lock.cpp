#include "run_folder/run_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status/heartbeat.h"
#include "base/threads.h"
#include "checkpoint/digest.h"
#include "run_folder/lock_owner.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr ExitCode kLockCode = ExitCode::checkpoint;
constexpr std::uint64_t kMaxLockBytes = 65536;
constexpr const char* kClaimPrefix = ".lock-";
constexpr const char* kTakeoverPrefix = ".takeover-";

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// The time of the last renewal, by the file server's clock.
double time_of(const struct stat& status) {
  return static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

bool set_time(const fs::path& path) {
  const std::array<timespec, 2> now_both = {timespec{0, UTIME_NOW}, timespec{0, UTIME_NOW}};
  return ::utimensat(AT_FDCWD, path.c_str(), now_both.data(), AT_SYMLINK_NOFOLLOW) == 0;
}

// Does not use base/file.h, whose reads are heartbeats: the lock is checked regardless of the run's progress.
std::string read_lock(const fs::path& path) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (descriptor.get() < 0) file_error(kLockCode, "read", path, errno);
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) file_error(kLockCode, "read", path, errno);
  // One byte more, as it may have grown.
  std::string text(std::min(static_cast<std::uint64_t>(status.st_size), kMaxLockBytes) + 1, '\0');
  ssize_t length = 0;
  do {
    length = ::read(descriptor.get(), text.data(), text.size());
  } while (length < 0 && errno == EINTR);
  if (length < 0) file_error(kLockCode, "read", path, errno);
  check(static_cast<std::uint64_t>(length) <= kMaxLockBytes, kLockCode, "{} is too large for a lock; remove it",
        path.string());
  text.resize(static_cast<std::size_t>(length));
  return text;
}

}  // namespace

// The state of an existing lock.
struct RunLock::Seen {
  std::string text;
  double renewed = 0;
  std::optional<LockOwner> owner;

  // nullopt if the file does not exist (any more).
  static std::optional<Seen> at(const fs::path& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
      file_error(kLockCode, "read", path, errno);
    }
    check(S_ISREG(status.st_mode), kLockCode, "{} is not a regular file; remove it", path.string());
    Seen seen;
    try {
      seen.text = read_lock(path);
    } catch (const Error&) {
      std::error_code error;
      if (!fs::exists(fs::symlink_status(path, error))) return std::nullopt;
      throw;
    }
    seen.renewed = time_of(status);
    seen.owner = parse_owner(seen.text);
    return seen;
  }

  std::string description() const {
    if (!owner) return "another process";
    return fmt::format("process {} on host {}{}", owner->pid, owner->host,
                       owner->since.empty() ? "" : " since " + owner->since);
  }
};

// Observes another process's lock until it is known whether its owner is alive.
class RunLock::Watch {
 public:
  enum class Verdict { wait, lives, gone };

  Watch(const LockTiming& timing, LockOwner self) : timing_(timing), self_(std::move(self)) {}

  // `server_time`: the current time by the file server's clock.
  Verdict judge(const Seen& seen, double server_time, const fs::path& path) {
    const bool local = seen.owner && same_machine(*seen.owner, self_);
    if (local && !ddp::lives(*seen.owner)) return Verdict::gone;
    if (!first_ || first_->text != seen.text) {
      first_ = seen;
      since_ = now();
    }
    const double watched = now() - since_;
    if (local) return watched < timing_.leaving ? Verdict::wait : Verdict::lives;
    if (seen.renewed != first_->renewed) return Verdict::lives;
    if (std::max(server_time - seen.renewed, watched) >= timing_.stale) return Verdict::gone;
    if (!std::exchange(said_, true)) {
      log_info("{} is held by {}; waiting up to {:.0f} s for a sign of life", path.string(), seen.description(),
               timing_.stale);
    }
    return Verdict::wait;
  }

 private:
  LockTiming timing_;
  LockOwner self_;
  std::optional<Seen> first_;
  double since_ = 0;
  bool said_ = false;
};

RunLock::RunLock(fs::path folder, const LockTiming& timing)
    : folder_(std::move(folder)), path_(folder_ / kLockFile), timing_(timing) {
  const LockOwner self = this_process();
  text_ = to_text(self);
  claim_ = folder_ / (kClaimPrefix + name_of(self));
  last_act_.emplace([this] {
    given_up_ = true;
    ::unlink(claim_.c_str());
    if (is_ours()) ::unlink(path_.c_str());
  });
  try {
    acquire(self);
    struct stat status {};
    if (::stat(folder_.c_str(), &status) == 0) device_ = status.st_dev;
    watcher_ = start_thread("the lock of the run folder", [this](const std::stop_token& stop) { watch(stop); });
  } catch (...) {
    release();
    throw;
  }
}

RunLock::~RunLock() { release(); }

void RunLock::release() noexcept {
  try {
    last_act_.reset();
    watcher_ = {};
    std::error_code ignored;
    fs::remove(claim_, ignored);
    if (std::exchange(held_, false) && is_ours()) {
      sweep();
      fs::remove(path_, ignored);
    }
    // rmdir() removes only empty folders.
    if (std::exchange(made_folder_, false)) (void)::rmdir(folder_.c_str());
  } catch (const std::exception&) {
    // The lock is left behind, and the next process detects that its owner is gone.
  }
}

void RunLock::make_folder() {
  std::error_code error;
  const bool there = fs::exists(folder_, error);
  make_folders(folder_, kLockCode);
  made_folder_ |= !there;
}

void RunLock::write_claim() const {
  File file(claim_, File::Mode::create_new, kLockCode);
  file.write(text_);
  file.sync();
  file.close();
}

// Whether this process created `path` exclusively, with the content of the claim.
bool RunLock::create_exclusively(const fs::path& path) const {
  if (::link(claim_.c_str(), path.c_str()) == 0) return true;
  const int error_number = errno;
  struct stat status {};
  // A network file system may report failure of a link that it has created.
  if (::stat(claim_.c_str(), &status) == 0 && status.st_nlink == 2) return true;
  if (error_number == EEXIST || error_number == ENOENT) return false;
  const std::array without_links = {EPERM, ENOSYS, ENOTSUP, EMLINK, EINVAL};
  if (std::find(without_links.begin(), without_links.end(), error_number) == without_links.end()) {
    file_error(kLockCode, "create", path, error_number);
  }
  const Descriptor descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (descriptor.get() < 0 && errno == EEXIST) return false;
  if (descriptor.get() < 0) file_error(kLockCode, "create", path, errno);
  if (::write(descriptor.get(), text_.data(), text_.size()) != static_cast<ssize_t>(text_.size())) {
    file_error(kLockCode, "write", path, errno);
  }
  return true;
}

// Note [Waiting for a lock is no hang]
// The wait for a sign of life ends by itself, after LockTiming::stale, whatever --hang-timeout and --timeout are: each
// look at the lock is progress. A look that hangs in the file system is not.
void RunLock::acquire(const LockOwner& self) {
  Watch watched(timing_, self);
  const Activity activity("waiting for the lock " + path_.string());
  constexpr int kMostVanished = 1000;
  for (int vanished = 0; vanished < kMostVanished;) {
    // The process is ending on another thread.
    while (given_up_) sleep_for(1);
    heartbeat();
    std::error_code error;
    if (!fs::exists(claim_, error)) {
      make_folder();
      write_claim();
    }
    if (create_exclusively(path_)) {
      held_ = true;
      fs::remove(claim_, error);
      sweep();
      return;
    }
    const std::optional<Seen> seen = Seen::at(path_);
    struct stat status {};
    if (!seen || !set_time(claim_) || ::stat(claim_.c_str(), &status) != 0) {
      ++vanished;
      sleep_for(0.01);
      continue;
    }
    switch (watched.judge(*seen, time_of(status), path_)) {
      case Watch::Verdict::lives:
        throw Error(kLockCode, fmt::format("{} is in use by {}; wait for it, stop it, or use another --output (%j "
                                           "expands to the Slurm job ID, %a to the array task ID)",
                                           folder_.string(), seen->description()));
      case Watch::Verdict::wait:
        sleep_for(0.1);
        break;
      case Watch::Verdict::gone:
        if (!take_over(*seen)) {
          sleep_for(0.01);
          break;
        }
        held_ = true;
        log_info("{}: took over the lock of {}, which is gone", folder_.string(), seen->description());
        sweep();
        return;
    }
  }
  throw Error(kLockCode,
              fmt::format("{}: cannot acquire the lock, which other processes keep creating and removing; use another "
                          "--output",
                          path_.string()));
}

// Replaces the observed lock; returns false if another process was faster. On success the claim is the lock.
bool RunLock::take_over(const Seen& seen) const {
  const fs::path right = folder_ / (kTakeoverPrefix + digest_of(std::as_bytes(std::span(seen.text))).xxh3_128);
  std::error_code error;
  if (!create_exclusively(right)) {
    // The takeover right is held only for an instant, unless that process died as well.
    const std::optional<Seen> other = Seen::at(right);
    struct stat status {};
    if (!other || ::stat(claim_.c_str(), &status) != 0) return false;
    const bool local = other->owner && same_machine(*other->owner, *parse_owner(text_));
    const bool gone = local ? !lives(*other->owner) : time_of(status) - other->renewed > timing_.stale;
    if (gone) fs::remove(right, error);
    return false;
  }
  const std::optional<Seen> current = Seen::at(path_);
  const bool same = current && current->text == seen.text;
  if (same) fs::rename(claim_, path_, error);
  const bool taken = same && !error;
  std::error_code ignored;
  fs::remove(right, ignored);
  if (same && error) file_error(kLockCode, "replace", path_, error.value());
  return taken;
}

// Removes claims of processes that were killed while acquiring the lock.
void RunLock::sweep() const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) return;
  const double server_time = time_of(status);
  const LockOwner self = *parse_owner(text_);
  std::error_code error;
  std::vector<fs::path> leftovers;
  fs::directory_iterator entry(folder_, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kClaimPrefix) && !name.starts_with(kTakeoverPrefix)) continue;
    struct stat its {};
    if (::lstat(entry->path().c_str(), &its) != 0 || !S_ISREG(its.st_mode)) continue;
    bool dead = false;
    if (name.starts_with(kClaimPrefix)) {
      dead = abandoned(name.substr(std::string_view(kClaimPrefix).size()), self);
    } else if (const auto seen = Seen::at(entry->path()); seen && seen->owner) {
      dead = same_machine(*seen->owner, self) && !lives(*seen->owner);
    }
    if (dead || server_time - time_of(its) > timing_.stale) leftovers.push_back(entry->path());
  }
  for (const fs::path& leftover : leftovers) fs::remove(leftover, error);
}

void RunLock::renew() const noexcept {
  if (set_time(path_)) return;
  // On a file system without settable times, rewriting the same bytes updates the time.
  const int descriptor = ::open(path_.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  (void)!::pwrite(descriptor, text_.data(), text_.size(), 0);
  ::close(descriptor);
}

bool RunLock::is_ours() const {
  try {
    return read_lock(path_) == text_;
  } catch (const Error&) {
    return false;
  }
}

std::string RunLock::problem() const {
  std::optional<Seen> seen;
  // Checkpoints wait for this: usually nothing has changed.
  if (is_ours()) return "";
  try {
    seen = Seen::at(path_);
  } catch (const Error&) {
    return "";  // the file system reports an error, which says nothing about the lock
  }
  if (seen && seen->text == text_) return "";
  if (seen) {
    return fmt::format(
        "{} was taken over by {}, because this run showed no activity for a while; it exits so that "
        "the two do not mix",
        folder_.string(), seen->description());
  }
  if (away()) return "";
  return fmt::format(
      "{} was deleted, moved or replaced while the run was writing to it; restore it and resume with "
      "--resume auto, or start over",
      folder_.string());
}

// Its place, or the folder above that is left, then belongs to another file system.
bool RunLock::away() const {
  for (fs::path folder = fs::absolute(folder_);; folder = folder.parent_path()) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) == 0) return status.st_dev != device_;
    if (folder == folder.root_path()) return false;
  }
}

void RunLock::watch(const std::stop_token& stop) {
  double renewed = now();
  bool was_away = false;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested() && problem_.empty()) {
    wakes_.wait_for(lock, stop, std::chrono::duration<double>(timing_.look), [] { return false; });
    if (stop.stop_requested()) return;
    lock.unlock();
    std::string found = given_up_ ? "" : problem();
    if (found.empty() && away() != was_away) {
      was_away = !was_away;
      if (was_away) {
        log_warning("the file system of {} is not there any more; training continues", folder_.string());
      } else {
        log_info("the file system of {} is there again", folder_.string());
      }
    }
    if (found.empty() && now() - renewed >= timing_.renew) {
      renew();
      renewed = now();
    }
    lock.lock();
    problem_ = std::move(found);
  }
}

void RunLock::check_held() {
  const std::unique_lock lock(mutex_);
  if (!problem_.empty()) throw Error(kLockCode, problem_);
}

void RunLock::check_held_now() {
  std::string found = given_up_ ? "" : problem();
  {
    const std::unique_lock lock(mutex_);
    if (problem_.empty()) problem_ = std::move(found);
  }
  check_held();
}

}  // namespace ddp
