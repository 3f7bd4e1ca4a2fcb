#include "run_folder/lock_owner.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "base/host.h"
#include "base/random.h"
#include "checkpoint/digest.h"

namespace ddp {
namespace {

// Files in /proc report no size.
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

struct ProcessStatus {
  char state = 'X';
  std::uint64_t started = 0;
};

std::optional<ProcessStatus> status_of(std::int64_t pid) {
  const std::string text = text_of(fmt::format("/proc/{}/stat", pid));
  // "PID (NAME) STATE PPID ...": the name may contain blanks and parentheses.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  ProcessStatus status;
  rest >> status.state;
  std::string passed_over;
  for (int field = 4; field < 22; ++field) rest >> passed_over;
  if (!(rest >> status.started)) return std::nullopt;
  return status;
}

std::string machine_of(const LockOwner& owner) {
  const std::string text = owner.host + "\n" + owner.boot + "\n" + owner.pid_namespace;
  return digest_of(std::as_bytes(std::span(text))).xxh3_128.substr(0, 16);
}

std::string local_time() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  if (localtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts) == 0) {
    return "";
  }
  return text.data();
}

}  // namespace

LockOwner this_process() {
  LockOwner owner;
  owner.host = host_name();
  owner.boot = boot_id();
  owner.pid_namespace = pid_namespace();
  owner.pid = ::getpid();
  if (const auto status = status_of(owner.pid)) owner.started = status->started;
  owner.since = local_time();
  owner.token = random_token();
  return owner;
}

std::string to_text(const LockOwner& owner) {
  nlohmann::ordered_json json;
  json["host"] = owner.host;
  json["boot"] = owner.boot;
  json["pid_namespace"] = owner.pid_namespace;
  json["pid"] = owner.pid;
  json["started"] = owner.started;
  json["since"] = owner.since;
  json["token"] = owner.token;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::optional<LockOwner> parse_owner(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    LockOwner owner;
    owner.host = json.at("host").get<std::string>();
    owner.boot = json.at("boot").get<std::string>();
    owner.pid_namespace = json.at("pid_namespace").get<std::string>();
    owner.pid = json.at("pid").get<std::int64_t>();
    owner.started = json.at("started").get<std::uint64_t>();
    owner.since = json.at("since").get<std::string>();
    owner.token = json.at("token").get<std::string>();
    return owner;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string name_of(const LockOwner& owner) {
  return fmt::format("{}-{}-{}-{}", machine_of(owner), owner.pid, owner.started, owner.token);
}

bool abandoned(const std::string& name, const LockOwner& self) {
  std::istringstream parts(name);
  std::string machine;
  LockOwner owner;
  char dash = 0;
  if (!std::getline(parts, machine, '-') || !(parts >> owner.pid >> dash >> owner.started)) return false;
  return machine == machine_of(self) && !lives(owner);
}

bool same_machine(const LockOwner& a, const LockOwner& b) {
  return !a.boot.empty() && !a.pid_namespace.empty() && a.host == b.host && a.boot == b.boot &&
         a.pid_namespace == b.pid_namespace;
}

bool lives(const LockOwner& owner) {
  const auto status = status_of(owner.pid);
  return status && status->state != 'Z' && status->state != 'X' && status->started == owner.started;
}

}  // namespace ddp
