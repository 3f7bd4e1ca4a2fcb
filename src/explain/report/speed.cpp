#include "explain/report/speed.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/text/text.h"
#include "explain/report/chart.h"
#include "explain/report/page.h"

namespace ddp {
namespace {

using Value = double (*)(const TrainRecord&);

std::string training_curve(std::span<const ReportedRun> runs, const std::string& title, Value value, bool from_zero) {
  LineChart chart{title, "step", {}, from_zero};
  for (const ReportedRun& run : runs) {
    Series series{run.name, {}};
    for (const TrainRecord& record : run.history.training) {
      series.points.emplace_back(static_cast<double>(record.step), value(record));
    }
    chart.series.push_back(std::move(series));
  }
  return line_chart(chart);
}

std::string phases_over_time(const ReportedRun& run) {
  StackChart chart{fmt::format("time of rank 0 by phase, milliseconds per step: {}", run.name), "step", {}, {}};
  for (const Phase phase : kPhases) chart.parts.push_back(phase_label(phase));
  std::int64_t before = 0;
  for (const TrainRecord& record : run.history.training) {
    const double steps = static_cast<double>(std::max<std::int64_t>(1, record.step - before));
    before = record.step;
    std::vector<double> values;
    for (const Phase phase : kPhases) values.push_back(record.phases[phase] / steps * 1e3);
    chart.columns.emplace_back(static_cast<double>(record.step), std::move(values));
  }
  return stack_chart(chart);
}

std::string ranks_by_phase(const ReportedRun& run) {
  if (!run.timing) return "";
  HeatMap map{fmt::format("share of each rank's time by phase: {}", run.name), {}, {}, {}};
  for (const Phase phase : kPhases) {
    map.columns.push_back(phase == Phase::exposed_communication ? "communic." : phase_label(phase));
  }
  for (std::size_t rank = 0; rank < run.timing->ranks.size(); ++rank) {
    const PhaseTotals& phases = run.timing->ranks[rank].phases;
    map.rows.push_back(fmt::format("{} {}", rank, run.timing->facts.hosts[rank].substr(0, 12)));
    std::vector<double> row;
    for (const Phase phase : kPhases) row.push_back(phases.sum() > 0 ? std::max(0.0, phases[phase]) / phases.sum() : 0);
    map.values.push_back(std::move(row));
  }
  return heat_map(map);
}

std::string html_list(const std::vector<std::string>& sentences) {
  std::string html;
  for (const std::string& sentence : sentences) html += "<li>" + html_text(sentence) + "</li>";
  return html.empty() ? "" : "<ul>" + html + "</ul>";
}

// "1.71 times the images/s (predicted)"
std::string cure_gain(const Cure& cure) {
  return fmt::format("{} gives {}{:.2f} times the images/s (predicted){}", cure.text(),
                     cure.lower_bound ? "at least " : "", cure.speedup,
                     cure.changes_training ? ", but changes the training" : "");
}

std::string as_sentence(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text + ".";
}

std::string verdict_of(const ReportedRun& run, const Explanation& found) {
  std::string html = fmt::format("<h3>{}</h3><p><strong>{}</strong> {} train{} {} images per second.</p>",
                                 html_text(run.name), html_text(as_sentence(found.headline)),
                                 counted(run.timing->ranks.size(), "rank"), run.timing->ranks.size() == 1 ? "s" : "",
                                 format_count(static_cast<std::uint64_t>(std::max(0.0, found.images_per_second))));
  html += html_list(found.evidence);
  std::vector<std::string> cures;
  for (const Cure& cure : found.cures) cures.push_back(cure_gain(cure));
  if (!found.advice.empty()) cures.push_back(found.advice);
  if (!cures.empty()) html += "<p>What helps:</p>" + html_list(cures);
  if (!found.also.empty()) html += "<p>Also:</p>" + html_list(found.also);
  return html;
}

}  // namespace

std::string verdicts(std::span<const ReportedRun> runs) {
  std::string html;
  for (const ReportedRun& run : runs) {
    if (!run.timing || run.timing->ranks[0].steps == 0) continue;
    html += verdict_of(run, explain(*run.timing, run.options));
  }
  return html;
}

std::string speed_charts(std::span<const ReportedRun> runs) {
  std::string html = "<div class='charts'>";
  html += training_curve(
      runs, "images per second", [](const TrainRecord& r) { return r.images_per_second; }, true);
  html += training_curve(
      runs, "share of the devices' peak, percent",
      [](const TrainRecord& r) { return 100 * r.mfu.value_or(std::nan("")); }, true);
  for (const ReportedRun& run : runs) html += phases_over_time(run) + ranks_by_phase(run) + "\n";
  return html + "</div>";
}

}  // namespace ddp
