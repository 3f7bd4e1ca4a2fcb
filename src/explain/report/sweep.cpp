// The report of a sweep: its leaderboard, each swept option against the accuracy, and the curves of the best trials.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text/csv.h"
#include "explain/report/chart.h"
#include "explain/report/learned.h"
#include "explain/report/page.h"
#include "explain/report/report.h"

namespace ddp {
namespace {

constexpr const char* kLeaderboard = "leaderboard.csv";
// Lines of a chart that can be told apart.
constexpr std::size_t kMostRuns = 8;

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string leaderboard_table(const ReportedSweep& sweep) {
  std::vector<std::string> head = {"place", "trial", "accuracy"};
  head.insert(head.end(), sweep.options.begin(), sweep.options.end());
  head.insert(head.end(), {"loss", "epochs", "seconds", "state"});
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < sweep.trials.size(); ++i) {
    const ReportedTrial& t = sweep.trials[i];
    rows.push_back({std::to_string(i + 1), t.trial, t.accuracy ? fmt::format("{:.2f}%", *t.accuracy * 100) : ""});
    rows.back().insert(rows.back().end(), t.setting.begin(), t.setting.end());
    rows.back().insert(rows.back().end(),
                       {t.val_loss, t.epochs, t.seconds, t.state + (t.reason.empty() ? "" : ": " + t.reason)});
  }
  return html_table(head, rows, {0, 1, 2});
}

// One option against the accuracy, a point for each trial. Values that are not numbers stand side by side.
std::string option_chart(const ReportedSweep& sweep, std::size_t option) {
  std::vector<std::string> names;
  bool numbers = true;
  for (const ReportedTrial& t : sweep.trials) {
    numbers = numbers && number_of(t.setting[option]).has_value();
    if (std::find(names.begin(), names.end(), t.setting[option]) == names.end()) names.push_back(t.setting[option]);
  }
  if (names.size() < 2) return "";
  std::sort(names.begin(), names.end());
  Series points{"trials", {}};
  for (const ReportedTrial& t : sweep.trials) {
    if (!t.accuracy) continue;
    const auto place = std::find(names.begin(), names.end(), t.setting[option]) - names.begin();
    const double x = numbers ? *number_of(t.setting[option]) : static_cast<double>(place);
    points.points.emplace_back(x, 100 * *t.accuracy);
  }
  std::sort(points.points.begin(), points.points.end());
  LineChart chart{"best accuracy by --" + sweep.options[option] + ", percent", "--" + sweep.options[option], {points}};
  chart.markers = true;
  chart.lines = false;
  if (numbers && points.points.size() > 1) {
    constexpr double kWide = 30;
    chart.log_x = points.points.front().first > 0 && points.points.back().first > kWide * points.points.front().first;
  }
  if (!numbers) chart.x_names = std::move(names);
  return line_chart(chart);
}

}  // namespace

bool is_sweep(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / kLeaderboard, error);
}

ReportedSweep read_reported_sweep(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kLeaderboard;
  const std::vector<CsvRow> rows = csv_rows(read_text(path, ExitCode::checkpoint, std::uint64_t{64} << 20U));
  // Columns before and behind those of the options.
  constexpr std::size_t kBefore = 8;
  const auto damaged = [&](bool fine) {
    check(fine, ExitCode::checkpoint, "{}: not a leaderboard of ddp_train sweep; continue the sweep to write it again",
          path.string());
  };
  damaged(!rows.empty() && rows[0].cells.size() > kBefore && rows[0].cells[0] == "place" &&
          rows[0].cells.back() == "reason");
  ReportedSweep sweep;
  sweep.name = folder.lexically_normal().string();
  sweep.options.assign(rows[0].cells.begin() + kBefore, rows[0].cells.end() - 1);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const std::vector<std::string>& row = rows[i].cells;
    damaged(row.size() == rows[0].cells.size());
    sweep.trials.push_back({row[1],
                            row[2],
                            row[3],
                            number_of(row[4]),
                            row[6],
                            row[7],
                            {row.begin() + kBefore, row.end() - 1},
                            row.back()});
    if (sweep.runs.size() >= kMostRuns || !number_of(row[4]) || !number_of(row[1])) continue;
    try {
      ReportedRun run = read_reported_run(folder / fmt::format("trial-{:04.0f}", *number_of(row[1])));
      run.name = "trial " + row[1];
      sweep.runs.push_back(std::move(run));
    } catch (const Error&) {
      continue;  // its folder may have been removed; the leaderboard has its result
    }
  }
  return sweep;
}

std::string report(const ReportedSweep& sweep) {
  std::string body = section("Leaderboard", leaderboard_table(sweep));
  std::string charts;
  for (std::size_t option = 0; option < sweep.options.size(); ++option) charts += option_chart(sweep, option);
  if (!charts.empty()) body += section("What the options do", "<div class='charts'>" + charts + "</div>");
  if (!sweep.runs.empty()) {
    body += section("The best trials", learned_table(sweep.runs) + learned_curves(sweep.runs));
    body += section("Classes of the best trial", class_charts(std::span(sweep.runs).first(1)));
  }
  return page("ddp_train sweep: " + sweep.name, body);
}

}  // namespace ddp
