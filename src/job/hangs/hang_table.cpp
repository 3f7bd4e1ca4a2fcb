#include "job/hangs/hang_table.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <future>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/file.h"
#include "base/status/position.h"
#include "base/text/text.h"
#include "base/text/text_table.h"

namespace ddp {
namespace {

std::string text_of(const auto& characters) { return {characters.data()}; }

WorkPhase phase_of(const RankState& state) { return static_cast<WorkPhase>(state.pulse.phase); }

bool blames(const Finding& finding, const RankState& state) {
  return std::find(finding.ranks.begin(), finding.ranks.end(), state.rank) != finding.ranks.end();
}

std::string silent_reason(const RankState& state) {
  if (state.report.stopped != 0) return "stopped by a signal";
  if (state.gone) return "gone: its process has ended";
  if (state.answers) return "silent: its process is there, but tells nothing";
  return "silent: its process is stopped, or its host cannot be reached";
}

// Pulses come a few times a second.
constexpr double kLateForAPulse = 2;

// What a rank does that neither makes progress nor waits for others.
std::string stuck_reason(const RankState& state) {
  if (state.report.file_call != 0) return "in a file system call";
  switch (phase_of(state)) {
    case WorkPhase::data:
      return "in its loader";
    case WorkPhase::forward:
    case WorkPhase::backward:
    case WorkPhase::update:
    case WorkPhase::device:
      return "in a kernel";
    default:
      return "not arrived";
  }
}

// All ranks wait for one another: those are suspects that wait elsewhere than the others.
void mark_cycle(std::vector<RankState>& ranks) {
  const auto mark = [&](const auto& suspicious, const std::string& reason) {
    const auto count = std::count_if(ranks.begin(), ranks.end(), suspicious);
    if (count == 0 || count == static_cast<std::ptrdiff_t>(ranks.size())) return false;
    for (RankState& each : ranks) {
      if (suspicious(each)) each.suspect = reason;
    }
    return true;
  };
  if (mark([](const RankState& each) { return each.pulse.leaving != 0; }, "not arrived: it has left the run")) {
    for (RankState& each : ranks) {
      const std::string doing = text_of(each.report.doing);
      if (!each.suspect.empty() && doing.starts_with(kLeavingAfter)) {
        each.suspect += " after '" + doing.substr(kLeavingAfter.size()) + "'";
      }
    }
    return;
  }
  const auto at_end = [](const RankState& each) { return phase_of(each) == WorkPhase::end; };
  if (mark(at_end, "not arrived: it has left the training loop")) return;
  const auto diagnoses = [](const RankState& each) { return phase_of(each) == WorkPhase::diagnosis; };
  if (mark(diagnoses, "not arrived: it searches for the cause of a value that is not finite")) return;
  std::int64_t latest = 0;
  for (const RankState& each : ranks) latest = std::max(latest, each.pulse.step);
  if (mark([&](const RankState& each) { return each.pulse.step < latest; },
           fmt::format("not arrived at step {}", latest))) {
    return;
  }
  std::map<WorkPhase, std::size_t> phases;
  for (const RankState& each : ranks) ++phases[phase_of(each)];
  for (const auto& each_phase : phases) {
    const WorkPhase phase = each_phase.first;
    if (2 * each_phase.second <= ranks.size()) continue;
    mark([&](const RankState& each) { return phase_of(each) != phase; },
         fmt::format("not arrived: the others are in {}", phase_name(phase)));
  }
}

std::string place_text(const RankState& state) {
  const std::string phase = phase_name(phase_of(state));
  const std::string bucket = state.pulse.bucket > 0 ? fmt::format(", bucket {}", state.pulse.bucket) : "";
  return state.pulse.step > 0 ? fmt::format("step {}, {}{}", state.pulse.step, phase, bucket) : phase;
}

std::vector<std::string> row_of(const RankState& state) {
  const Pulse& pulse = state.pulse;
  std::string doing = text_of(state.report.doing);
  if (doing.empty()) doing = pulse.waits != 0 ? "waiting" : kUnknownCell;
  if (pulse.waits != 0 && pulse.peer >= 0) doing += fmt::format(", for rank {}", pulse.peer);
  std::string threads = text_of(state.report.threads);
  if (threads.empty()) threads = kUnknownCell;
  return {state.suspect.empty() ? "" : "->",
          std::to_string(state.rank),
          state.host,
          std::to_string(state.process),
          pulse.step > 0 ? std::to_string(pulse.step) : kUnknownCell,
          phase_name(phase_of(state)),
          pulse.bucket > 0 ? std::to_string(pulse.bucket) : kUnknownCell,
          fmt::format("{:.0f}", state.seconds_stuck),
          doing,
          threads,
          state.suspect};
}

std::string table_of(const std::vector<const RankState*>& ranks) {
  std::vector<std::vector<std::string>> rows = {
      {"", "rank", "host", "process", "step", "phase", "bucket", "seconds", "doing", "threads", "suspect"}};
  for (const RankState* const state : ranks) rows.push_back(row_of(*state));
  using enum Align;
  constexpr std::array kColumns = {left, right, left, right, right, left, right, right, left, left, left};
  return text_table(rows, kColumns);
}

struct Folder {
  std::mutex mutex;
  std::filesystem::path path;
};
Folder& hang_folder() {
  static auto* const instance = new Folder;
  return *instance;
}

std::string write_into(const std::filesystem::path& folder, const std::string& text, int rank) {
  std::error_code error;
  if (folder.empty() || !std::filesystem::is_directory(folder, error)) return "";
  const auto seconds = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  std::tm local{};
  const std::time_t time = std::chrono::system_clock::to_time_t(seconds);
  static_cast<void>(localtime_r(&time, &local));
  const std::filesystem::path path =
      folder / fmt::format("hang-{:%Y%m%d-%H%M%S}{}.txt", local, rank == 0 ? "" : fmt::format("-rank{}", rank));
  try {
    replace_file(path, text, ExitCode::rank_lost);
  } catch (const std::exception&) {
    return "";
  }
  return path.string();
}

}  // namespace

std::string suspect_text(const RankState& state) {
  const std::string file =
      state.report.file_call != 0 && state.report.doing.front() != 0 ? ", " + text_of(state.report.doing) : "";
  return fmt::format("rank {} on host {} (process {}) {} {}{} ({})", state.rank, state.host, state.process,
                     state.suspect.starts_with("not arrived") ? "has" : "is", state.suspect, file, place_text(state));
}

void mark_suspects(std::vector<RankState>& ranks, const Finding& finding) {
  bool any = false;
  for (RankState& each : ranks) {
    if (!blames(finding, each) || each.seconds_silent < kLateForAPulse) continue;
    each.suspect = silent_reason(each);
    any = true;
  }
  if (any) return;
  if (finding.kind == Finding::Kind::cycle) {
    mark_cycle(ranks);
    return;
  }
  for (RankState& each : ranks) {
    if (blames(finding, each)) each.suspect = stuck_reason(each);
  }
}

std::string hang_table(const std::vector<RankState>& ranks) { return short_hang_table(ranks, ranks.size()); }

std::string short_hang_table(const std::vector<RankState>& ranks, std::size_t most) {
  std::vector<const RankState*> shown;
  for (const RankState& each : ranks) {
    if (!each.suspect.empty() && shown.size() < most) shown.push_back(&each);
  }
  for (const RankState& each : ranks) {
    if (each.suspect.empty() && shown.size() < most) shown.push_back(&each);
  }
  std::stable_sort(shown.begin(), shown.end(),
                   [](const RankState* a, const RankState* b) { return a->rank < b->rank; });
  std::string text = table_of(shown);
  if (shown.size() < ranks.size()) text += fmt::format("and {} more ranks\n", ranks.size() - shown.size());
  return text;
}

void set_hang_folder(const std::filesystem::path& folder) {
  const std::scoped_lock lock(hang_folder().mutex);
  hang_folder().path = folder;
}

// The file system may be what hangs.
std::string write_hang_table(const std::string& text, int rank) {
  std::filesystem::path folder;
  {
    const std::scoped_lock lock(hang_folder().mutex);
    folder = hang_folder().path;
  }
  try {
    std::promise<std::string> written;
    std::future<std::string> path = written.get_future();
    std::thread([folder, text, rank, written = std::move(written)]() mutable {
      written.set_value(write_into(folder, text, rank));
    }).detach();
    if (path.wait_for(std::chrono::seconds(2)) == std::future_status::ready) return path.get();
  } catch (const std::exception&) {
    // No thread could be started.
  }
  return "";
}

}  // namespace ddp
