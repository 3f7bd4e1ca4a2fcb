#include "fault.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/status/position.h"

namespace ddp::faults {
namespace {

struct Wanted {
  std::string kind;
  std::string place;
  std::string path;
  long rank = -1;
  long step = -1;
  long left = 1;  // -1: without end
  Fault fault;
};

[[noreturn]] void reject(const std::string& text) {
  fmt::print(stderr, "DDP_FAULTS: '{}' is unknown\n", text);
  std::_Exit(2);
}

Wanted parse(const std::string& text) {
  Wanted wanted;
  std::istringstream words(text);
  words >> wanted.kind;
  wanted.fault.value = std::numeric_limits<double>::quiet_NaN();
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) reject(word);
    const std::string key = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (key == "rank") {
      wanted.rank = std::stol(value);
    } else if (key == "step") {
      wanted.step = std::stol(value);
    } else if (key == "count") {
      wanted.left = std::stol(value) == 0 ? -1 : std::stol(value);
    } else if (key == "seconds") {
      wanted.fault.seconds = std::stod(value);
    } else if (key == "value") {
      wanted.fault.value = std::stod(value);
    } else if (key == "place") {
      wanted.place = value;
    } else if (key == "path") {
      wanted.path = value;
    } else {
      reject(word);
    }
  }
  return wanted;
}

struct List {
  std::mutex mutex;
  std::vector<Wanted> faults;
};

List& list() {
  static auto* const all = [] {
    auto* const parsed = new List;
    const char* const text = std::getenv("DDP_FAULTS");
    std::istringstream parts(text == nullptr ? "" : text);
    for (std::string part; std::getline(parts, part, ';');) {
      if (part.find_first_not_of(' ') != std::string::npos) parsed->faults.push_back(parse(part));
    }
    return parsed;
  }();
  return *all;
}

}  // namespace

bool wanted(std::string_view kind) {
  List& all = list();
  const std::scoped_lock lock(all.mutex);
  return std::any_of(all.faults.begin(), all.faults.end(),
                     [&](const Wanted& each) { return each.kind == kind && each.left != 0; });
}

std::optional<Fault> due(std::string_view kind, std::string_view place, const std::string& path) {
  List& all = list();
  const std::scoped_lock lock(all.mutex);
  for (Wanted& each : all.faults) {
    if (each.kind != kind || each.left == 0) continue;
    if (!each.place.empty() && each.place != place) continue;
    if (each.rank >= 0 && each.rank != log_rank()) continue;
    if (each.step >= 0 && each.step != position().step) continue;
    if (!each.path.empty() && path.find(each.path) == std::string::npos) continue;
    if (each.left > 0) --each.left;
    return each.fault;
  }
  return std::nullopt;
}

void sleep_for(double seconds) {
  if (seconds > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return;
  }
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace ddp::faults
