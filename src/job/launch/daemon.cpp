#include "job/launch/daemon.h"

#include <dirent.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp {
namespace {

// The intervals double from 0.2 s: the sixth retransmission follows 12.6 s after the first packet, when mpirun's keep-alive
// (launch/run) has given the host up too.
constexpr int kCutOff = 6;

bool is_daemon(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/comm", process));
  std::string name;
  std::getline(file, name);
  return name == "orted";
}

template <typename Number>
std::optional<Number> parsed(std::string_view text, int base) {
  Number value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    words.push_back(line.substr(0, line.find(' ')));
    line.remove_prefix(words.back().size());
  }
}

// The inodes of the sockets of a process, as far as they may be read.
std::set<std::uint64_t> sockets_of(pid_t process) {
  std::set<std::uint64_t> sockets;
  const std::string folder = fmt::format("/proc/{}/fd", process);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), &::closedir);
  if (!entries) return sockets;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): this stream belongs to one thread
  while (const dirent* entry = ::readdir(entries.get())) {
    std::array<char, 64> target{};
    const ssize_t length = ::readlinkat(::dirfd(entries.get()), entry->d_name, target.data(), target.size());
    std::string_view text(target.data(), static_cast<std::size_t>(std::max<ssize_t>(0, length)));
    constexpr std::string_view kPrefix = "socket:[";
    if (!text.starts_with(kPrefix) || !text.ends_with(']')) continue;
    text = text.substr(kPrefix.size(), text.size() - kPrefix.size() - 1);
    if (const auto inode = parsed<std::uint64_t>(text, 10)) sockets.insert(*inode);
  }
  return sockets;
}

}  // namespace

int most_retransmissions(std::string_view table, const std::set<std::uint64_t>& sockets) {
  // "sl local remote state tx:rx tr:when retransmissions uid timeout inode ...", the retransmissions in hexadecimal digits.
  constexpr std::size_t kRetransmissions = 6;
  constexpr std::size_t kInode = 9;
  int most = 0;
  while (!table.empty()) {
    const std::string_view line = table.substr(0, table.find('\n'));
    table.remove_prefix(std::min(table.size(), line.size() + 1));
    const std::vector<std::string_view> words = words_of(line);
    if (words.size() <= kInode) continue;
    const auto inode = parsed<std::uint64_t>(words[kInode], 10);
    if (inode && sockets.contains(*inode)) most = std::max(most, parsed<int>(words[kRetransmissions], 16).value_or(0));
  }
  return most;
}

bool daemon_is_cut_off() {
  const pid_t daemon = ::getppid();
  if (!is_daemon(daemon)) return false;
  const std::set<std::uint64_t> sockets = sockets_of(daemon);
  for (const char* const path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path, std::ios::binary);
    const std::string table{std::istreambuf_iterator<char>(file), {}};
    if (most_retransmissions(table, sockets) >= kCutOff) return true;
  }
  return false;
}

}  // namespace ddp
