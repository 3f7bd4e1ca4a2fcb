#include "explain/report/report.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <sstream>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/text/text.h"
#include "explain/report/chart.h"
#include "explain/report/learned.h"
#include "explain/report/page.h"
#include "explain/report/speed.h"
#include "options/parse.h"

namespace ddp {
namespace {

// The options that differ between the runs; of a single run all of them.
std::string configurations(std::span<const ReportedRun> runs) {
  std::set<std::string> keys;
  for (const ReportedRun& run : runs) {
    for (const auto& [key, value] : run.config) keys.insert(key);
  }
  const auto value_of = [](const ReportedRun& run, const std::string& key) {
    const auto found = run.config.find(key);
    return found == run.config.end() ? std::string() : found->second;
  };
  std::vector<std::string> head = {"option"};
  for (const ReportedRun& run : runs) head.push_back(run.name);
  std::vector<std::vector<std::string>> rows;
  for (const std::string& key : keys) {
    const std::string first = value_of(runs[0], key);
    const bool same =
        std::all_of(runs.begin(), runs.end(), [&](const auto& run) { return value_of(run, key) == first; });
    if (runs.size() > 1 && same) continue;
    rows.push_back({"--" + key});
    for (const ReportedRun& run : runs) rows.back().push_back(value_of(run, key));
  }
  const char* title = runs.size() > 1 ? "Options that differ" : "Options";
  return section(title, rows.empty() ? "<p>none</p>" : html_table(head, rows));
}

// The lines `key = value` of a configuration file, without comments.
std::map<std::string, std::string> settings_of(const std::string& text) {
  std::map<std::string, std::string> settings;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find('#'));
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos) settings[trimmed(line.substr(0, equals))] = trimmed(line.substr(equals + 1));
  }
  return settings;
}

// "mpirun -np 2 ddp_train --model lenet --lr 0.05": the options that are not the default.
std::string command_of(const ReportedRun& run) {
  const std::map<std::string, std::string> defaults = settings_of(dump_config(Options{}));
  std::string text = run.timing && run.timing->ranks.size() > 1
                         ? fmt::format("mpirun -np {} ddp_train", run.timing->ranks.size())
                         : "ddp_train";
  for (const auto& [key, value] : run.config) {
    const auto found = defaults.find(key);
    if (found != defaults.end() && found->second == value) continue;
    const bool plain = value.find_first_of(" \t'\"*?$&;|<>()\\") == std::string::npos;
    text += fmt::format(" --{} {}", key, plain ? value : "'" + value + "'");
  }
  return text;
}

// When, with what, and by which command.
std::string origins(std::span<const ReportedRun> runs) {
  std::string html;
  for (const ReportedRun& run : runs) {
    std::vector<std::string> parts;
    if (runs.size() > 1) parts.push_back(run.name);
    if (!run.begun.empty()) parts.push_back("begun " + run.begun);
    if (run.timing && !run.timing->facts.program.empty()) parts.push_back("ddp_train " + run.timing->facts.program);
    if (run.timing && !run.timing->facts.device.empty()) parts.push_back(run.timing->facts.device);
    html += fmt::format("<p class='dim'>{} <code>{}</code></p>", html_text(join(parts)), html_text(command_of(run)));
  }
  return html;
}

// The configuration is written when a run begins.
std::string begun_at(const std::filesystem::path& config) {
  struct stat status {};
  std::tm time{};
  if (::stat(config.c_str(), &status) != 0 || ::gmtime_r(&status.st_mtime, &time) == nullptr) return "";
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", time);
}

}  // namespace

ReportedRun read_reported_run(const std::filesystem::path& folder) {
  ReportedRun run;
  run.name = folder.lexically_normal().string();
  run.folder = folder;
  run.history = read_history(folder);
  run.epochs = read_summary(folder);
  const std::filesystem::path config = folder / "config.cfg";
  run.config = settings_of(read_text(config, ExitCode::checkpoint, std::uint64_t{1} << 20U));
  const std::string name = config.string();
  const std::vector<const char*> arguments = {"--config", name.c_str()};
  run.options = parse_options(arguments);
  run.begun = begun_at(config);
  std::error_code error;
  if (std::filesystem::exists(folder / "timing.json", error)) run.timing = read_timing(folder);
  return run;
}

std::string report(std::span<const ReportedRun> runs) {
  std::string title = "ddp_train: ";
  for (std::size_t i = 0; i < runs.size(); ++i) title += (i > 0 ? ", " : "") + runs[i].name;
  std::string body = origins(runs);
  body += section("What was learned", learned_table(runs) + learned_curves(runs) + epoch_tables(runs));
  body += section("Classes", class_charts(runs));
  body += section("What limits the speed", verdicts(runs) + speed_charts(runs));
  return page(title, body + configurations(runs));
}

}  // namespace ddp
